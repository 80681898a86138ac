//go:build ignore

// The command `go run weave.go` prepares a build of kube-scheduler with the calls of rules.tsv in its functions, in a
// module that requires k8s.io/kubernetes: then `go build -overlay=overlay.json` makes it. Nothing is copied but the files
// that change.
//
// All that is inserted goes onto lines that are there, and holds no function literal: lines and symbols stay as they are.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

const (
	kubernetes = "k8s.io/kubernetes"
	// The go command replaces no file beneath the module cache: the module is reached through this link.
	link = "k8s"
	// Where the changed files are written.
	woven = "woven"
	// The module's name is that of every scheduler's under tests.
	importPath = "schedspan.test/kubernetes"
)

type rule struct {
	folder, function, unless, where, what string
	optional                              bool
}

// edit is a text to insert.
type edit struct {
	offset int
	text   string
}

// source is a file of the scheduler.
type source struct {
	path  string
	text  []byte
	set   *token.FileSet
	tree  *ast.File
	edits []edit
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "weave:", err)
		os.Exit(1)
	}
}

func run() error {
	rules, err := readRules("rules.tsv")
	if err != nil {
		return err
	}
	if _, err := goCommand("mod", "download", kubernetes); err != nil {
		return err
	}
	module, err := goCommand("list", "-m", "-f", "{{.Dir}}", kubernetes)
	if err != nil {
		return err
	}
	if err := os.Symlink(module, link); err != nil {
		return err
	}
	if _, err := goCommand("mod", "edit", "-replace="+kubernetes+"=./"+link); err != nil {
		return err
	}
	folders := map[string][]*source{}
	for _, rule := range rules {
		if folders[rule.folder] == nil {
			if folders[rule.folder], err = parse(filepath.Join(link, "pkg/scheduler", rule.folder)); err != nil {
				return err
			}
		}
		if err := rule.apply(folders[rule.folder]); err != nil {
			return fmt.Errorf("%s: %w", rule.function, err)
		}
	}
	overlay := map[string]string{}
	for _, files := range folders {
		for _, file := range files {
			if len(file.edits) > 0 {
				target := filepath.Join(woven, strings.ReplaceAll(file.path, "/", "_"))
				overlay[file.path] = target
				if err := file.write(target); err != nil {
					return err
				}
			}
		}
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": overlay}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile("overlay.json", text, 0o644)
}

func goCommand(args ...string) (string, error) {
	command := exec.Command("go", args...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}

func readRules(path string) ([]rule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rules []rule
	for number, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			return nil, fmt.Errorf("%s, line %d: %d fields instead of 4", path, number+1, len(fields))
		}
		function, optional := strings.CutSuffix(fields[1], "?")
		function, unless, _ := strings.Cut(function, "!")
		rules = append(rules, rule{fields[0], function, unless, fields[2], fields[3], optional})
	}
	return rules, nil
}

// parse reads the files of a package, without its tests.
func parse(folder string) ([]*source, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*source
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, &source{path: path, text: text, set: set, tree: tree})
	}
	return files, nil
}

// find finds a method by its name.
func find(files []*source, name string) (*source, *ast.FuncDecl) {
	for _, file := range files {
		for _, declaration := range file.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && function.Recv != nil && function.Name.Name == name {
				return file, function
			}
		}
	}
	return nil, nil
}

var placeholder = regexp.MustCompile(`\$(\d+|status)`)

func (r rule) apply(files []*source) error {
	if _, other := find(files, r.unless); other != nil {
		return nil
	}
	file, function := find(files, r.function)
	if function == nil {
		if r.optional {
			return nil
		}
		return fmt.Errorf("no such method in pkg/scheduler/%s", r.folder)
	}
	var failure error
	what := placeholder.ReplaceAllStringFunc(r.what, func(text string) string {
		name, err := "", error(nil)
		if index, wrong := strconv.Atoi(text[1:]); wrong == nil {
			name, err = parameter(function, index)
		} else {
			name, err = file.status(function)
		}
		if err != nil {
			failure = err
		}
		return name
	})
	if failure != nil {
		return failure
	}
	if r.where == "{" {
		file.insert(function.Body.Lbrace+1, " "+what+";")
		return nil
	}
	for _, statement := range function.Body.List {
		if strings.Contains(string(file.text[file.offset(statement.Pos()):file.offset(statement.End())]), r.where) {
			file.insert(statement.End(), "; "+what)
			return nil
		}
	}
	return fmt.Errorf("no statement holds `%s`", r.where)
}

// parameter gives the name of a function's parameter.
func parameter(function *ast.FuncDecl, index int) (string, error) {
	var names []string
	for _, field := range function.Type.Params.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	if index >= len(names) || names[index] == "_" {
		return "", fmt.Errorf("parameter %d has no name", index)
	}
	return names[index], nil
}

// status gives the name of the result that is a Status, and gives it one if it has none.
func (s *source) status(function *ast.FuncDecl) (string, error) {
	const name = "peerStatus"
	found := ""
	if function.Type.Results == nil {
		return "", fmt.Errorf("it has no results")
	}
	results := function.Type.Results
	for _, field := range results.List {
		is := strings.HasSuffix(string(s.text[s.offset(field.Type.Pos()):s.offset(field.Type.End())]), ".Status")
		switch {
		case len(field.Names) > 0:
			if is {
				found = field.Names[0].Name
			}
		case is:
			found = name
			s.insert(field.Type.Pos(), name+" ")
		default:
			s.insert(field.Type.Pos(), "_ ")
		}
	}
	if found == "" || found == "_" {
		return "", fmt.Errorf("no result is a Status with a name")
	}
	// A single result without a name has no parentheses either.
	if !results.Opening.IsValid() {
		s.edits[len(s.edits)-1].text = "(" + name + " "
		s.insert(results.End(), ")")
	}
	return found, nil
}

func (s *source) offset(position token.Pos) int {
	return s.set.Position(position).Offset
}

func (s *source) insert(position token.Pos, text string) {
	s.edits = append(s.edits, edit{s.offset(position), text})
}

// write writes the file with what is inserted, and the import that this needs.
func (s *source) write(target string) error {
	s.insert(s.tree.Name.End(), `; import inproc "`+importPath+`"`)
	sort.SliceStable(s.edits, func(i, j int) bool { return s.edits[i].offset < s.edits[j].offset })
	var out bytes.Buffer
	last := 0
	for _, edit := range s.edits {
		out.Write(s.text[last:edit.offset])
		out.WriteString(edit.text)
		last = edit.offset
	}
	out.Write(s.text[last:])
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, out.Bytes(), 0o644)
}
