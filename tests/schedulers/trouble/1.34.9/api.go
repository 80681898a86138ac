// What the plugin API of Kubernetes 1.34 calls things: half of it has moved to kube-scheduler.
package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type (
	handle              = framework.Handle
	plugin              = framework.Plugin
	preFilterExtensions = framework.PreFilterExtensions
	scoreExtensions     = framework.ScoreExtensions
	postFilterResult    = framework.PostFilterResult
	nodeStatuses        = framework.NodeToStatusReader
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

func (t *trouble) PreFilter(_ context.Context, _ state, pod *v1.Pod, _ nodes) (*framework.PreFilterResult, *status) {
	return nil, t.preFilter(pod)
}

func (t *trouble) PreBindPreFlight(_ context.Context, _ state, pod *v1.Pod, _ string) *status {
	return t.preBindPreFlight(pod)
}
