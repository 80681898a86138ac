// Package inproc makes the spans of a kube-scheduler from the inside, with the OpenTelemetry SDK, where weave.go puts
// calls of it: the same names, parents and attributes as schedspan's, to compare the two.
//
// The OTEL_* variables say where spans go, by OTLP over gRPC; without OTEL_EXPORTER_OTLP_ENDPOINT there are none. With
// PEER_MONOTONIC=true each span says when it began and ended by CLOCK_MONOTONIC.
//
// The time is taken first of all at either end of a span: what the SDK does then takes microseconds, and on a goroutine that
// is new, whose stack has to grow for it, some ten.
package inproc

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	_ "unsafe" // For go:linkname.

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// The keys are those of crates/spans/src/attributes.rs.
const (
	podName        = attribute.Key("k8s.pod.name")
	podNamespace   = attribute.Key("k8s.namespace.name")
	podUID         = attribute.Key("k8s.pod.uid")
	profile        = attribute.Key("k8s.scheduler.profile")
	phase          = attribute.Key("k8s.scheduler.phase")
	result         = attribute.Key("k8s.scheduler.result")
	selectedNode   = attribute.Key("k8s.scheduler.selected_node")
	attemptNumber  = attribute.Key("k8s.scheduler.attempt")
	pluginName     = attribute.Key("k8s.scheduler.plugin.name")
	extensionPoint = attribute.Key("k8s.scheduler.plugin.extension_point")
	message        = attribute.Key("k8s.scheduler.message")
	monotonicStart = attribute.Key("schedspan.monotonic.start_ns")
	monotonicEnd   = attribute.Key("schedspan.monotonic.end_ns")
)

var (
	tracer    = newTracer()
	monotonic = os.Getenv("PEER_MONOTONIC") == "true"
	anchor    = newAnchor()
)

func newTracer() trace.Tracer {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return noop.NewTracerProvider().Tracer("")
	}
	exporter, err := otlptracegrpc.New(context.Background())
	if err != nil {
		fmt.Fprintf(os.Stderr, "no spans: %v\n", err)
		os.Exit(1)
	}
	// What cannot be found out about the process is left out.
	described, _ := resource.New(context.Background(), resource.WithProcessPID(), resource.WithFromEnv())
	return sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(described)).Tracer("inproc")
}

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// clocks says what CLOCK_MONOTONIC was at a time that has a monotonic reading.
type clocks struct {
	time time.Time
	ns   int64
}

// newAnchor takes the closest of some readings: its error is half the time between the two around it, some nanoseconds.
func newAnchor() (best clocks) {
	for i, closest := 0, int64(0); i < 100; i++ {
		before, now, after := nanotime(), time.Now(), nanotime()
		if i == 0 || after-before < closest {
			best, closest = clocks{now, before + (after-before)/2}, after-before
		}
	}
	return best
}

func (c clocks) at(t time.Time) int64 {
	return c.ns + int64(t.Sub(c.time))
}

// attempt is what the spans of one attempt have in common.
type attempt struct {
	root    trace.Span
	profile attribute.KeyValue
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	found, _ := ctx.Value(attemptKey{}).(*attempt)
	return found
}

// cycle is the context of the scheduling cycle that goes on: there is one at a time.
var cycle atomic.Pointer[context.Context]

// Begin begins an attempt: the Pod has been popped.
func Begin(ctx context.Context, info *framework.QueuedPodInfo) context.Context {
	if info == nil || info.Pod == nil {
		return ctx
	}
	now, pod := time.Now(), info.Pod
	ofProfile := profile.String(pod.Spec.SchedulerName)
	ctx, root := tracer.Start(ctx, "SchedulePod", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(podName.String(pod.Name), podNamespace.String(pod.Namespace), podUID.String(string(pod.UID)),
			ofProfile, attemptNumber.Int(info.Attempts)), trace.WithTimestamp(now))
	return context.WithValue(ctx, attemptKey{}, &attempt{root, ofProfile})
}

// Start begins one of the two cycles.
func Start(ctx context.Context, name string) (context.Context, trace.Span) {
	now := time.Now()
	if attemptOf(ctx) == nil {
		return ctx, noop.Span{}
	}
	ctx, span := tracer.Start(ctx, name, trace.WithTimestamp(now))
	if name == "schedulingCycle" {
		cycle.Store(&ctx)
	}
	return ctx, span
}

// StartSnapshot begins a phase that is given no context.
func StartSnapshot() trace.Span {
	ctx := cycle.Load()
	if ctx == nil {
		return noop.Span{}
	}
	_, span := StartPhase(*ctx, "snapshot")
	return span
}

// StartPhase begins a phase.
func StartPhase(ctx context.Context, name string) (context.Context, trace.Span) {
	now := time.Now()
	attempt := attemptOf(ctx)
	if attempt == nil {
		return ctx, noop.Span{}
	}
	return tracer.Start(ctx, name, trace.WithAttributes(phase.String(name), attempt.profile), trace.WithTimestamp(now))
}

// StartPlugin begins a plugin's part of a phase.
func StartPlugin(ctx context.Context, point string, plugin interface{ Name() string }) (context.Context, trace.Span) {
	now := time.Now()
	if attemptOf(ctx) == nil {
		return ctx, noop.Span{}
	}
	name := plugin.Name()
	return tracer.Start(ctx, "plugin: "+name, trace.WithTimestamp(now),
		trace.WithAttributes(pluginName.String(name), extensionPoint.String(point)))
}

// StartFailure begins the handling of a failure.
func StartFailure(ctx context.Context) (context.Context, trace.Span) {
	attempt := attemptOf(ctx)
	if attempt == nil {
		return ctx, noop.Span{}
	}
	// Of the root, whatever called it.
	ctx = trace.ContextWithSpan(ctx, attempt.root)
	return StartPhase(ctx, "handleSchedulingFailure")
}

// status is the framework's Status, whose package has moved in 1.34.
type status[C fmt.Stringer] interface {
	comparable
	Code() C
	IsRejected() bool
	Reasons() []string
}

// End ends a phase: as everybody who calls `span.End()`, it says first how that came out, and then takes the time.
func End[C fmt.Stringer, S status[C]](span trace.Span, status *S) {
	describe(span, *status)
	Done(span)
}

// EndPlugin ends a plugin's part of a phase.
func EndPlugin[C fmt.Stringer, S status[C]](span trace.Span, status *S) {
	code := describe(span, *status)
	if reason := reasonOf(*status); reason != "" {
		span.SetAttributes(message.String(reason))
	}
	if (*status).IsRejected() {
		span.AddEvent("plugin rejected", trace.WithAttributes(result.String(code)))
	}
	Done(span)
}

// EndBinding ends the binding cycle, and with it an attempt that was successful.
func EndBinding[C fmt.Stringer, S status[C]](ctx context.Context, span trace.Span, status *S, node string) {
	Done(span)
	attempt, code := attemptOf(ctx), (*status).Code().String()
	if attempt == nil || code != "Success" {
		return
	}
	attempt.root.SetAttributes(result.String(code), selectedNode.String(node))
	Done(attempt.root)
}

// EndFailure ends the handling of a failure, and with it the attempt.
func EndFailure[C fmt.Stringer, S status[C]](ctx context.Context, span trace.Span, status S) {
	Done(span)
	attempt := attemptOf(ctx)
	if attempt == nil {
		return
	}
	// What `schedule_attempts_total` tells apart.
	outcome := "Error"
	if status.IsRejected() {
		outcome = "Unschedulable"
	}
	attempt.root.SetAttributes(result.String(outcome))
	// The message of a Pod that fits nowhere is about every Node: making it here takes longer than the span.
	attempt.root.SetStatus(codes.Error, outcome)
	Done(attempt.root)
}

// describe writes down how something ended.
func describe[C fmt.Stringer, S status[C]](span trace.Span, status S) string {
	code := status.Code().String()
	span.SetAttributes(result.String(code))
	if code == "Error" || status.IsRejected() {
		span.SetStatus(codes.Error, reasonOf(status))
	}
	return code
}

func reasonOf[C fmt.Stringer, S status[C]](status S) string {
	var none S
	if status == none {
		return ""
	}
	if reasons := status.Reasons(); len(reasons) > 0 {
		return reasons[0]
	}
	return ""
}

// Done ends a span. What the comparison wants to know of it is said before the time is taken, as far as that can be: it is no
// part of what a span costs.
func Done(span trace.Span) {
	started, ok := span.(sdk.ReadOnlySpan)
	if !ok || !monotonic {
		span.End()
		return
	}
	span.SetAttributes(monotonicStart.Int64(anchor.at(started.StartTime())))
	now := time.Now()
	span.SetAttributes(monotonicEnd.Int64(anchor.at(now)))
	span.End(trace.WithTimestamp(now))
}
