// Kubernetes' own scheduler with one more plugin, built the way out-of-tree plugins are.
package main

import (
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	// HandleCrash logs a panic and ends the process, unless this is set. The scheduling loop runs below it, in wait.Until, and
	// so does each worker of a Parallelizer: then the Pod's attempt is over, and the scheduler goes on. A binding goroutine
	// has nothing of the kind, from 1.28 to 1.37: a panic there always ends the process.
	utilruntime.ReallyCrash = false
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(name, factory))))
}
