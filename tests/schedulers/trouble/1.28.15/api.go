// What the plugin API of Kubernetes 1.28 calls things.
package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type (
	handle              = framework.Handle
	plugin              = framework.Plugin
	preFilterExtensions = framework.PreFilterExtensions
	scoreExtensions     = framework.ScoreExtensions
	postFilterResult    = framework.PostFilterResult
	nodeStatuses        = framework.NodeToStatusMap
	state               = *framework.CycleState
	status              = framework.Status
	nodes               = []*v1.Node
	scored              = string
)

const (
	failed        = framework.Error
	unschedulable = framework.Unschedulable
	wait          = framework.Wait
	skip          = framework.Skip
)

var newStatus = framework.NewStatus

// factory makes the plugin without a context.
func factory(configuration apiruntime.Object, handle handle) (plugin, error) {
	return newPlugin(context.Background(), configuration, handle)
}

func (t *trouble) PreFilter(_ context.Context, _ state, pod *v1.Pod) (*framework.PreFilterResult, *status) {
	return nil, t.preFilter(pod)
}
