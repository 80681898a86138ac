// What the plugin API of Kubernetes 1.36 and 1.37 calls things.
package inproc

import fwk "k8s.io/kube-scheduler/framework"

type (
	handle          = fwk.Handle
	plugin          = fwk.Plugin
	scoreExtensions = fwk.ScoreExtensions
	state           = fwk.CycleState
	status          = fwk.Status
	node            = fwk.NodeInfo
	scored          = fwk.NodeInfo
)

const unschedulable = fwk.Unschedulable

var newStatus = fwk.NewStatus
