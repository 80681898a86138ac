// Checks a dashboard on standard input against Grafana's published schema: fields that no panel, query or variable of Grafana has, required
// ones that are missing, values out of their range, and panels that Grafana does not bring along. Prints the number of panels, or what is
// wrong.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	panels, err := check(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(panels)
}

func check(file io.Reader) (int, error) {
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, err
	}
	plugins.RegisterDefaultPlugins()
	if err := fault(new(dashboard.Dashboard).UnmarshalJSONStrict(text)); err != nil {
		return 0, err
	}
	var valid dashboard.Dashboard
	if err := json.Unmarshal(text, &valid); err != nil {
		return 0, err
	}
	if err := valid.Validate(); err != nil {
		return 0, err
	}
	// The strict reader of a dashboard is not strict with these.
	var read struct {
		Panels []struct {
			Title       string
			Type        string
			FieldConfig json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return 0, err
	}
	for _, panel := range read.Panels {
		if _, known := cog.ConfigForPanelcfgVariant(panel.Type); !known {
			return 0, fmt.Errorf("%s: Grafana has no panel of type %q", panel.Title, panel.Type)
		}
		if err := fault(new(dashboard.FieldConfigSource).UnmarshalJSONStrict(panel.FieldConfig)); err != nil {
			return 0, fmt.Errorf("%s: %w", panel.Title, err)
		}
	}
	return len(read.Panels), nil
}

// fault is the error of a strict reader: without a fault that is an empty list of type error, which is not nil.
func fault(err error) error {
	if err == nil || err.Error() == "" {
		return nil
	}
	return err
}
