// Package runtime runs plugins.
package runtime

import (
	"context"
	"time"

	"k8s.io/kubernetes/api/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type frameworkImpl struct{ plugins []framework.Plugin }

func New(plugins ...framework.Plugin) framework.Framework { return &frameworkImpl{plugins} }

//go:noinline
func (f *frameworkImpl) run(ctx context.Context, state *framework.CycleState, pod *v1.Pod, what string) *framework.Status {
	for _, plugin := range f.plugins {
		if filter, ok := plugin.(framework.FilterPlugin); ok && what == plugin.Name() {
			return filter.Filter(ctx, state, pod)
		}
	}
	return nil
}

//go:noinline
func (f *frameworkImpl) RunPreFilterPlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod) (int, *framework.Status) {
	return 1, f.run(ctx, state, pod, "preFilter")
}

//go:noinline
func (f *frameworkImpl) RunPostFilterPlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod) (int, *framework.Status) {
	return 2, f.run(ctx, state, pod, "postFilter")
}

//go:noinline
func (f *frameworkImpl) RunPreScorePlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod) *framework.Status {
	return f.run(ctx, state, pod, "preScore")
}

//go:noinline
func (f *frameworkImpl) RunScorePlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod) ([]int, *framework.Status) {
	start := time.Now()
	status := f.run(ctx, state, pod, "score")
	return []int{start.Nanosecond()}, status
}

//go:noinline
func (f *frameworkImpl) RunReservePluginsReserve(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) *framework.Status {
	return f.run(ctx, state, pod, node)
}

//go:noinline
func (f *frameworkImpl) RunPermitPlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) *framework.Status {
	return f.run(ctx, state, pod, node)
}

//go:noinline
func (f *frameworkImpl) WaitOnPermit(ctx context.Context, pod *v1.Pod) *framework.Status {
	return f.run(ctx, nil, pod, "wait")
}

//go:noinline
func (f *frameworkImpl) RunPreBindPreFlights(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) *framework.Status {
	return f.run(ctx, state, pod, node)
}

//go:noinline
func (f *frameworkImpl) RunPreBindPlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) *framework.Status {
	return f.run(ctx, state, pod, node)
}

//go:noinline
func (f *frameworkImpl) RunBindPlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) *framework.Status {
	return f.run(ctx, state, pod, node)
}

//go:noinline
func (f *frameworkImpl) RunPostBindPlugins(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) {
	f.run(ctx, state, pod, node)
}
