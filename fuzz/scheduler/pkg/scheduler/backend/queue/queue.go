// Package queue keeps Pods until their turn.
package queue

import (
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type unlockedActiveQueuer interface {
	add(pod *framework.QueuedPodInfo, event string)
}

type unlockedActiveQueue struct{ pods []*framework.QueuedPodInfo }

//go:noinline
func (q *unlockedActiveQueue) add(pod *framework.QueuedPodInfo, event string) {
	if event != "" {
		q.pods = append(q.pods, pod)
	}
}

type activeQueue struct {
	unlocked *unlockedActiveQueue
	under    func(func(unlockedActiveQueuer))
}

type PriorityQueue struct{ active *activeQueue }

func New() *PriorityQueue {
	queue := &activeQueue{unlocked: &unlockedActiveQueue{}}
	queue.under = func(do func(unlockedActiveQueuer)) { do(queue.unlocked) }
	return &PriorityQueue{queue}
}

//go:noinline
func (p *PriorityQueue) Add(pod *framework.QueuedPodInfo) {
	p.active.under(func(queue unlockedActiveQueuer) { queue.add(pod, "Add") })
}

//go:noinline
func (p *PriorityQueue) Pop() (*framework.QueuedPodInfo, error) {
	pods := p.active.unlocked.pods
	pod := pods[0]
	p.active.unlocked.pods = pods[1:]
	pod.Attempts++
	return pod, nil
}
