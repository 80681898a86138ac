// Package framework declares what the scheduler and its plugins hand each other.
package framework

import (
	"context"
	"time"

	"k8s.io/kubernetes/api/v1"
)

type CycleState struct{ Values map[string]int }

type PodInfo struct{ Pod *v1.Pod }

type QueuedPodInfo struct {
	*PodInfo
	Timestamp time.Time
	Attempts  int
}

type Status struct {
	code    int
	reasons []string
	plugin  string
}

func NewStatus(code int, plugin string, reasons ...string) *Status {
	return &Status{code, reasons, plugin}
}

func (s *Status) OK() bool { return s == nil || s.code == 0 && len(s.reasons) == 0 && s.plugin == "" }

type Plugin interface{ Name() string }

type FilterPlugin interface {
	Plugin
	Filter(ctx context.Context, state *CycleState, pod *v1.Pod) *Status
}

type Framework interface {
	RunPreFilterPlugins(ctx context.Context, state *CycleState, pod *v1.Pod) (int, *Status)
	RunPostFilterPlugins(ctx context.Context, state *CycleState, pod *v1.Pod) (int, *Status)
	RunPreScorePlugins(ctx context.Context, state *CycleState, pod *v1.Pod) *Status
	RunScorePlugins(ctx context.Context, state *CycleState, pod *v1.Pod) ([]int, *Status)
	RunReservePluginsReserve(ctx context.Context, state *CycleState, pod *v1.Pod, node string) *Status
	RunPermitPlugins(ctx context.Context, state *CycleState, pod *v1.Pod, node string) *Status
	WaitOnPermit(ctx context.Context, pod *v1.Pod) *Status
	RunPreBindPreFlights(ctx context.Context, state *CycleState, pod *v1.Pod, node string) *Status
	RunPreBindPlugins(ctx context.Context, state *CycleState, pod *v1.Pod, node string) *Status
	RunBindPlugins(ctx context.Context, state *CycleState, pod *v1.Pod, node string) *Status
	RunPostBindPlugins(ctx context.Context, state *CycleState, pod *v1.Pod, node string)
}
