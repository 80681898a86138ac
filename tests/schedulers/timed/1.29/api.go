// What the plugin API of Kubernetes 1.29 calls things.
package inproc

import "k8s.io/kubernetes/pkg/scheduler/framework"

type (
	handle          = framework.Handle
	plugin          = framework.Plugin
	scoreExtensions = framework.ScoreExtensions
	state           = *framework.CycleState
	status          = framework.Status
	node            = *framework.NodeInfo
	scored          = string
)

const unschedulable = framework.Unschedulable

var newStatus = framework.NewStatus
