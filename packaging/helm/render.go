// Renders a chart with Go's own template engine and the functions of sprig, as helm does; scripts/render-chart compares the
// result with its own. Needs Debian's golang-go and golang-github-masterminds-sprig-dev, no module proxy:
// GO111MODULE=off GOPATH=/usr/share/gocode go run packaging/helm/render.go CHART < VALUES.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

func read(path string, into any) {
	text, err := os.ReadFile(path)
	check(err)
	check(yaml.Unmarshal(text, into))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	chart := os.Args[1]
	var values, meta map[string]any
	check(json.NewDecoder(os.Stdin).Decode(&values))
	read(filepath.Join(chart, "Chart.yaml"), &meta)
	described := map[string]any{}
	for name, value := range meta { // helm has them as a struct: .Chart.AppVersion
		described[strings.ToUpper(name[:1])+name[1:]] = value
	}
	data := map[string]any{
		"Values": values, "Chart": described, "Release": map[string]any{"Name": "try", "Namespace": "default", "Service": "Helm"},
	}

	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value any) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	functions["include"] = func(name string, data any) (string, error) {
		var text bytes.Buffer
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		_, err = all.New(path).Parse(string(text))
		check(err)
	}
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		var text bytes.Buffer
		check(all.ExecuteTemplate(&text, path, data))
		if strings.HasSuffix(path, ".yaml") {
			fmt.Printf("---\n%s\n", text.String())
		}
	}
}
