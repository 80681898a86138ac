package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
)

const (
	name = "Trouble"
	// The annotation that says which trouble to make: this, and the name of the extension point.
	annotation = "trouble.schedspan.test/"

	slowness     = 20 * time.Millisecond
	waitTimeout  = time.Second
	allowAfter   = 200 * time.Millisecond
	allowTries   = 25
	allowTimeout = 2 * allowTries * allowAfter

	// Troubles that are remembered to have happened.
	maxHappened = 4096
)

// Which goroutine an extension point runs on: what a plugin can do to it.
type goroutine int

const (
	// The one that takes a Pod after the other: without it the scheduler does nothing more.
	scheduling goroutine = iota
	// The Pod's own: a panic there ends the scheduler, and is made in PostBind alone.
	binding
	// Unreserve is called on both.
	either
)

// What happened to which Pod, at which extension point.
type event struct {
	uid   string
	point string
}

// trouble does what a Pod's annotations say. Everything but `slow` and `wait-allow` happens once, the first time that the
// Pod comes there: all Pods are bound in the end, but for those whose attempt a panic or runtime.Goexit ended, which the
// scheduler forgets.
type trouble struct {
	handle handle

	mutex    sync.Mutex
	happened map[event]struct{}
	// The same, oldest first.
	order []event
}

func newPlugin(_ context.Context, _ apiruntime.Object, handle handle) (plugin, error) {
	return &trouble{handle: handle, happened: map[event]struct{}{}}, nil
}

func (*trouble) Name() string { return name }

func (t *trouble) preFilter(pod *v1.Pod) *status { return t.at("PreFilter", pod, scheduling, true) }

func (*trouble) PreFilterExtensions() preFilterExtensions { return nil }

func (t *trouble) PostFilter(_ context.Context, _ state, pod *v1.Pod, _ nodeStatuses) (*postFilterResult, *status) {
	if status := t.at("PostFilter", pod, scheduling, false); status != nil {
		return nil, status
	}
	return nil, newStatus(unschedulable)
}

func (t *trouble) PreScore(_ context.Context, _ state, pod *v1.Pod, _ nodes) *status {
	return t.at("PreScore", pod, scheduling, true)
}

func (*trouble) Score(context.Context, state, *v1.Pod, scored) (int64, *status) { return 1, nil }

func (*trouble) ScoreExtensions() scoreExtensions { return nil }

func (t *trouble) Reserve(_ context.Context, _ state, pod *v1.Pod, _ string) *status {
	return t.at("Reserve", pod, scheduling, false)
}

func (t *trouble) Unreserve(_ context.Context, _ state, pod *v1.Pod, _ string) {
	t.at("Unreserve", pod, either, false)
}

func (t *trouble) Permit(_ context.Context, _ state, pod *v1.Pod, _ string) (*status, time.Duration) {
	switch pod.Annotations[annotation+"Permit"] {
	case "wait":
		if t.first(pod, "Permit") {
			return newStatus(wait), waitTimeout
		}
		return nil, 0
	case "wait-allow":
		go t.allow(pod)
		return newStatus(wait), allowTimeout
	}
	return t.at("Permit", pod, scheduling, false), 0
}

// preBindPreFlight says Skip of Pods that PreBind has nothing to do with, as plugins shall.
func (t *trouble) preBindPreFlight(pod *v1.Pod) *status {
	if status := t.at("PreBindPreFlight", pod, binding, true); status != nil {
		return status
	}
	if _, found := pod.Annotations[annotation+"PreBind"]; !found {
		return newStatus(skip)
	}
	return nil
}

func (t *trouble) PreBind(_ context.Context, _ state, pod *v1.Pod, _ string) *status {
	return t.at("PreBind", pod, binding, false)
}

func (t *trouble) PostBind(_ context.Context, _ state, pod *v1.Pod, _ string) {
	t.at("PostBind", pod, binding, false)
}

// allow lets a Pod go on that waits, from a goroutine of its own: once it waits, which is a moment after Permit.
func (t *trouble) allow(pod *v1.Pod) {
	for try := 0; try < allowTries; try++ {
		time.Sleep(allowAfter)
		if waiting := t.handle.GetWaitingPod(pod.UID); waiting != nil {
			waiting.Allow(name)
			return
		}
	}
}

// at makes the trouble that the Pod asks for at this extension point, if it is one that the point and its goroutine can
// take; `skips` says whether the scheduler knows Skip there.
func (t *trouble) at(point string, pod *v1.Pod, on goroutine, skips bool) *status {
	what := pod.Annotations[annotation+point]
	switch {
	case what == "":
		return nil
	case what == "slow":
		time.Sleep(slowness)
		return nil
	case on == either || !t.first(pod, point):
		return nil
	case what == "reject":
		return newStatus(unschedulable, "trouble rejects")
	case what == "error":
		return newStatus(failed, "trouble fails")
	case what == "skip" && skips:
		return newStatus(skip)
	case what == "panic" && (on == scheduling || point == "PostBind"):
		panic("trouble panics")
	case what == "goexit" && on == binding:
		runtime.Goexit()
	}
	return newStatus(failed, fmt.Sprintf("no trouble `%s` at %s", what, point))
}

// first says whether the Pod comes to this extension point for the first time, as far as is remembered.
func (t *trouble) first(pod *v1.Pod, point string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := event{uid: string(pod.UID), point: point}
	if _, found := t.happened[now]; found {
		return false
	}
	if len(t.order) == maxHappened {
		delete(t.happened, t.order[0])
		t.order = t.order[1:]
	}
	t.happened[now] = struct{}{}
	t.order = append(t.order, now)
	return true
}
