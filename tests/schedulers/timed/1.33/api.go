// What the plugin API of Kubernetes 1.33 calls things.
package inproc

import "k8s.io/kubernetes/pkg/scheduler/framework"

type (
	handle          = framework.Handle
	plugin          = framework.Plugin
	scoreExtensions = framework.ScoreExtensions
	state           = *framework.CycleState
	status          = framework.Status
	node            = *framework.NodeInfo
	scored          = *framework.NodeInfo
)

const unschedulable = framework.Unschedulable

var newStatus = framework.NewStatus
