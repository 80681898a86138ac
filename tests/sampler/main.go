// Prints what TraceIDRatioBased decides: for each trace id on standard input, and each fraction that is an argument, a line
// with fraction, trace id and decision. Without arguments: the vectors of vectors.tsv, made of ids at the bounds of fractions
// and of others by chance.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	fractions, ids := os.Args[1:], io.Reader(os.Stdin)
	if len(fractions) == 0 {
		fractions = []string{"0", "0.000001", "0.01", "0.1", "0.25", "0.3333333333333333", "0.5", "0.9", "0.999999", "1"}
		ids = strings.NewReader(vectors(fractions))
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines := bufio.NewScanner(ids); lines.Scan(); {
		id, err := trace.TraceIDFromHex(lines.Text())
		if err != nil {
			log.Fatalf("%q is no trace id: %v", lines.Text(), err)
		}
		for _, text := range fractions {
			fraction, err := strconv.ParseFloat(text, 64)
			if err != nil {
				log.Fatalf("%q is no fraction: %v", text, err)
			}
			decision := sdktrace.TraceIDRatioBased(fraction).ShouldSample(sdktrace.SamplingParameters{TraceID: id}).Decision
			fmt.Fprintf(out, "%s\t%s\t%t\n", text, id, decision == sdktrace.RecordAndSample)
		}
	}
}

// Ids just below, at and above each bound, with the bit that does not count clear and set, and a hundred others.
func vectors(fractions []string) string {
	random := rand.New(rand.NewPCG(5927, 650))
	var low []uint64
	for _, text := range fractions {
		fraction, _ := strconv.ParseFloat(text, 64)
		bound := uint64(fraction * (1 << 63))
		low = append(low, (bound-1)<<1, (bound-1)<<1|1, bound<<1, bound<<1|1, (bound+1)<<1)
	}
	for range 100 {
		low = append(low, random.Uint64())
	}
	var ids strings.Builder
	for _, low := range low {
		var id trace.TraceID
		binary.BigEndian.PutUint64(id[:8], random.Uint64())
		binary.BigEndian.PutUint64(id[8:], low)
		fmt.Fprintln(&ids, id)
	}
	return ids.String()
}
