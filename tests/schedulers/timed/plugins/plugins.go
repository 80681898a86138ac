package inproc

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

const (
	burnedByFilter = 20 * time.Microsecond
	burnedByScore  = 50 * time.Microsecond
	slept          = 200 * time.Microsecond
	// A Pod with this annotation makes Panicker panic on the first Node.
	panics = "timed.schedspan.test/panics"
)

func init() {
	// As in tests/schedulers/trouble/plugin/main.go: a panic ends a worker of the phase, not the process.
	utilruntime.ReallyCrash = false
}

// Add adds the plugins to those of the scheduler.
func Add(registry map[string]func(context.Context, apiruntime.Object, handle) (plugin, error)) {
	for _, made := range []plugin{&burner{}, &sleeper{}, &halver{}, &panicker{}} {
		made := made // One variable for all turns before Go 1.22.
		registry[made.Name()] = func(context.Context, apiruntime.Object, handle) (plugin, error) { return made, nil }
	}
}

// burner takes a known CPU time for each Node.
type burner struct{}

func (*burner) Name() string { return "Burner" }

func (*burner) Filter(context.Context, state, *v1.Pod, node) *status {
	burn(burnedByFilter)
	return nil
}

func (*burner) Score(context.Context, state, *v1.Pod, scored) (int64, *status) {
	burn(burnedByScore)
	return 1, nil
}

func (*burner) ScoreExtensions() scoreExtensions { return nil }

func burn(time time.Duration) {
	for begin := nanotime(); nanotime()-begin < int64(time); {
	}
}

// sleeper waits for each Node, and takes next to no CPU time.
type sleeper struct{}

func (*sleeper) Name() string { return "Sleeper" }

func (*sleeper) Filter(context.Context, state, *v1.Pod, node) *status {
	time.Sleep(slept)
	return nil
}

// halver rejects the Nodes with an odd number.
type halver struct{}

func (*halver) Name() string { return "Halver" }

func (*halver) Filter(_ context.Context, _ state, _ *v1.Pod, node node) *status {
	name := node.Node().Name
	if (name[len(name)-1]-'0')%2 == 1 {
		return newStatus(unschedulable, "an odd number")
	}
	return nil
}

// panicker panics if a Pod asks for it.
type panicker struct{}

func (*panicker) Name() string { return "Panicker" }

func (*panicker) Filter(_ context.Context, _ state, pod *v1.Pod, node node) *status {
	name := node.Node().Name
	if _, found := pod.Annotations[panics]; found && name[len(name)-2:] == "02" {
		panic("panicker panics")
	}
	return nil
}
