// A program with the names and shapes of kube-scheduler that a plan looks for, small enough to be damaged a million times.
package main

import (
	"context"
	"fmt"

	"k8s.io/kubernetes/api/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

type nodeName struct{}

func (*nodeName) Name() string { return "NodeName" }

func (*nodeName) Filter(ctx context.Context, state *framework.CycleState, pod *v1.Pod) *framework.Status {
	if pod.Namespace == "" || ctx.Err() != nil || len(state.Values) > 0 {
		return framework.NewStatus(2, "NodeName", "it fits nowhere")
	}
	return nil
}

func main() {
	pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: "default"}}
	pod.Name, pod.Namespace = "pod", "default"
	scheduler.New(runtime.New(&nodeName{}), pod).ScheduleOne(context.Background())
	fmt.Println(pod.Name, pod.Spec.NodeName)
}
