// What the plugin API of Kubernetes 1.36 and 1.37 calls things.
package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

type (
	handle              = fwk.Handle
	plugin              = fwk.Plugin
	preFilterExtensions = fwk.PreFilterExtensions
	scoreExtensions     = fwk.ScoreExtensions
	postFilterResult    = fwk.PostFilterResult
	nodeStatuses        = fwk.NodeToStatusReader
	state               = fwk.CycleState
	status              = fwk.Status
	nodes               = []fwk.NodeInfo
	scored              = fwk.NodeInfo
)

const (
	failed        = fwk.Error
	unschedulable = fwk.Unschedulable
	wait          = fwk.Wait
	skip          = fwk.Skip
)

var newStatus = fwk.NewStatus

var factory = newPlugin

func (t *trouble) PreFilter(_ context.Context, _ state, pod *v1.Pod, _ nodes) (*fwk.PreFilterResult, *status) {
	return nil, t.preFilter(pod)
}

// PreBindPreFlight does not allow PreBind to run in parallel with others: its troubles are for the binding goroutine.
func (t *trouble) PreBindPreFlight(_ context.Context, _ state, pod *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *status) {
	return nil, t.preBindPreFlight(pod)
}
