// Package inproc times each call of a Filter and Score plugin from the inside, where weave.go puts calls of it, and logs the
// sums of each scheduling cycle: a line `timed` and a JSON object.
package inproc

import (
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	_ "unsafe" // For go:linkname.

	v1 "k8s.io/api/core/v1"
)

// Calls of a cycle that are kept; more are counted as lost.
const room = 1 << 16

type named interface{ Name() string }

// A call is kept as it is. The time is taken first and last of all, so that little of this is between these clocks and those of
// a probe around it.
type call struct {
	plugin      named
	pod         *v1.Pod
	point, code string
	// Time of the call, and of one reading of the clock in it.
	ns, clock int64
}

var (
	calls [room]call
	next  atomic.Int64
)

// result is the framework's Status, whose package has moved in 1.34.
type result[C fmt.Stringer] interface {
	comparable
	Code() C
}

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// Now is the time by CLOCK_MONOTONIC.
func Now() int64 { return nanotime() }

// Timed keeps a call that ends. The status is no pointer: a result that a pointer leads to is allocated before the first clock.
func Timed[C fmt.Stringer, S result[C]](begin int64, point string, plugin named, pod *v1.Pod, status S) {
	if at := next.Add(1) - 1; at < room {
		calls[at] = call{plugin, pod, point, status.Code().String(), 0, 0}
		end := nanotime()
		calls[at].ns, calls[at].clock = end-begin, nanotime()-end
	}
}

type sum struct {
	Point  string `json:"point"`
	Plugin string `json:"plugin"`
	Code   string `json:"code"`
	Calls  int64  `json:"calls"`
	Ns     int64  `json:"ns"`
	Clock  int64  `json:"clock"`
}

// Flush logs the sums of a cycle that ends. Cycles are serial, and no call of a plugin outlasts its own.
func Flush() {
	count := next.Swap(0)
	kept := calls[:min(count, room)]
	if len(kept) == 0 {
		return
	}
	uid := kept[0].pod.UID
	type key struct{ point, plugin, code string }
	sums := map[key]*sum{}
	for _, call := range kept {
		key := key{call.point, call.plugin.Name(), call.code}
		of := sums[key]
		if of == nil {
			of = &sum{Point: key.point, Plugin: key.plugin, Code: key.code}
			sums[key] = of
		}
		of.Calls++
		of.Ns += call.ns
		of.Clock += call.clock
	}
	list := make([]*sum, 0, len(sums))
	for _, of := range sums {
		list = append(list, of)
	}
	line, err := json.Marshal(map[string]any{"pod": uid, "lost": count - int64(len(kept)), "sums": list})
	if err == nil {
		fmt.Fprintf(os.Stderr, "timed %s\n", line)
	}
}
