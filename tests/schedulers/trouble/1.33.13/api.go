// What the plugin API of Kubernetes 1.33 calls things.
package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type (
	handle              = framework.Handle
	plugin              = framework.Plugin
	preFilterExtensions = framework.PreFilterExtensions
	scoreExtensions     = framework.ScoreExtensions
	postFilterResult    = framework.PostFilterResult
	nodeStatuses        = framework.NodeToStatusReader
	state               = *framework.CycleState
	status              = framework.Status
	nodes               = []*framework.NodeInfo
	scored              = *framework.NodeInfo
)

const (
	failed        = framework.Error
	unschedulable = framework.Unschedulable
	wait          = framework.Wait
	skip          = framework.Skip
)

var newStatus = framework.NewStatus

var factory = newPlugin

func (t *trouble) PreFilter(_ context.Context, _ state, pod *v1.Pod) (*framework.PreFilterResult, *status) {
	return nil, t.preFilter(pod)
}
