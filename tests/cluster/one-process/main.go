// kube-scheduler and kube-controller-manager as goroutines of one process, as k3s runs them. The scheduler's arguments come first,
// those of the other after "--".
package main

// With C code, and static, as k3s is linked.

// #cgo LDFLAGS: -static
import "C"

import (
	"os"
	"slices"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	logs "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

func main() {
	split := slices.Index(os.Args, "--")
	if split < 0 {
		os.Stderr.WriteString("usage: k3s-like ARGUMENTS OF kube-scheduler -- ARGUMENTS OF kube-controller-manager\n")
		os.Exit(2)
	}
	// Logs and feature gates belong to the process, and both commands set them up: the second one begins when the first one has.
	logs.ReapplyHandling = logs.ReapplyHandlingIgnoreUnchanged
	isSetUp := make(chan struct{})
	first := scheduler.NewSchedulerCommand(func(runtime.Registry) error {
		close(isSetUp)
		return nil
	})
	first.SetArgs(os.Args[1:split])
	second := manager.NewControllerManagerCommand()
	second.SetArgs(os.Args[split+1:])

	ended := make(chan int)
	go func() { ended <- cli.Run(first) }()
	go func() {
		<-isSetUp
		ended <- cli.Run(second)
	}()
	os.Exit(<-ended)
}
