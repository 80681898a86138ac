// Package scheduler has the loop.
package scheduler

import (
	"context"
	"time"

	"k8s.io/kubernetes/api/v1"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

type Scheduler struct {
	NextPod        func() (*framework.QueuedPodInfo, error)
	FailureHandler func(ctx context.Context, fwk framework.Framework, pod *framework.QueuedPodInfo, status *framework.Status, start time.Time)
	Profiles       profile.Map
	spent          float64
}

func New(fwk framework.Framework, pods ...*v1.Pod) *Scheduler {
	waiting := queue.New()
	for _, pod := range pods {
		waiting.Add(&framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: pod}, Timestamp: time.Now()})
	}
	sched := &Scheduler{NextPod: waiting.Pop, Profiles: profile.Map{"default": fwk}}
	sched.FailureHandler = sched.handleSchedulingFailure
	return sched
}

//go:noinline
func (sched *Scheduler) ScheduleOne(ctx context.Context) {
	pod, err := sched.NextPod()
	if err != nil {
		return
	}
	fwk, state := sched.Profiles[pod.Pod.Spec.SchedulerName], &framework.CycleState{}
	node, status := sched.schedulingCycle(ctx, state, fwk, pod)
	if status.OK() {
		status = sched.bindingCycle(ctx, state, fwk, pod, node)
	}
	if !status.OK() {
		sched.FailureHandler(ctx, fwk, pod, status, time.Now())
	}
}

//go:noinline
func (sched *Scheduler) schedulingCycle(ctx context.Context, state *framework.CycleState, fwk framework.Framework, pod *framework.QueuedPodInfo) (string, *framework.Status) {
	if _, status := fwk.RunPreFilterPlugins(ctx, state, pod.Pod); !status.OK() {
		return "", status
	}
	if !sched.findNodesThatPassFilters(ctx, fwk, pod.Pod) {
		_, status := fwk.RunPostFilterPlugins(ctx, state, pod.Pod)
		return "", status
	}
	if status := fwk.RunPreScorePlugins(ctx, state, pod.Pod); !status.OK() {
		return "", status
	}
	if scores, status := fwk.RunScorePlugins(ctx, state, pod.Pod); !status.OK() || len(scores) > 1 {
		return "", status
	}
	if status := fwk.RunReservePluginsReserve(ctx, state, pod.Pod, "node"); !status.OK() {
		return "", status
	}
	return "node", fwk.RunPermitPlugins(ctx, state, pod.Pod, "node")
}

//go:noinline
func (sched *Scheduler) findNodesThatPassFilters(ctx context.Context, fwk framework.Framework, pod *v1.Pod) bool {
	start := time.Now()
	defer func() { sched.spent += metrics.SinceInSeconds(start) }()
	return pod.Name != "" && fwk != nil && ctx.Err() == nil
}

//go:noinline
func (sched *Scheduler) bindingCycle(ctx context.Context, state *framework.CycleState, fwk framework.Framework, pod *framework.QueuedPodInfo, node string) *framework.Status {
	if status := fwk.RunPreBindPreFlights(ctx, state, pod.Pod, node); !status.OK() {
		return status
	}
	if status := fwk.WaitOnPermit(ctx, pod.Pod); !status.OK() {
		return status
	}
	if status := fwk.RunPreBindPlugins(ctx, state, pod.Pod, node); !status.OK() {
		return status
	}
	if status := sched.bind(ctx, fwk, pod.Pod, node, state); !status.OK() {
		return status
	}
	fwk.RunPostBindPlugins(ctx, state, pod.Pod, node)
	return nil
}

//go:noinline
func (sched *Scheduler) bind(ctx context.Context, fwk framework.Framework, pod *v1.Pod, node string, state *framework.CycleState) (status *framework.Status) {
	defer func() { sched.finishBinding(pod, node, status) }()
	return fwk.RunBindPlugins(ctx, state, pod, node)
}

//go:noinline
func (sched *Scheduler) finishBinding(pod *v1.Pod, node string, status *framework.Status) {
	if status.OK() {
		pod.Spec.NodeName = node
	}
}

//go:noinline
func (sched *Scheduler) handleSchedulingFailure(ctx context.Context, fwk framework.Framework, pod *framework.QueuedPodInfo, status *framework.Status, start time.Time) {
	sched.spent += metrics.SinceInSeconds(start)
	if status.OK() || fwk == nil || ctx.Err() != nil {
		pod.Attempts = 0
	}
}
