// Package metrics times.
package metrics

import "time"

//go:noinline
func SinceInSeconds(start time.Time) float64 { return time.Since(start).Seconds() }
