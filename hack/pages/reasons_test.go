// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// reasons are all words that the code can write as the reason of a condition or an event, with where it does.
type reasons struct {
	pkg   *packages.Package
	found map[string]string
}

// notOfConditions are packages whose reasons reach no object: tests, the answers of webhooks, and what explain says itself.
var notOfConditions = regexp.MustCompile(`test$|/testkit|/sample|/internal/cli|/internal/admission`)

var reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// TestReasonsAreExplained looks for each of them on the page about troubleshooting, and for entries that nothing writes.
func TestReasonsAreExplained(t *testing.T) {
	written := writtenReasons(t)
	explained := map[string]bool{}
	for _, p := range pages(t) {
		if p.path != "docs/troubleshooting.md" {
			continue
		}
		for _, r := range p.rows {
			if r.head[0] != "reason" {
				continue
			}
			for _, s := range codeSpan.FindAllStringSubmatch(r.cells[0], -1) {
				if explained[s[1]] {
					t.Errorf("%s:%d: %s is explained twice", p.path, r.line, s[1])
				}
				explained[s[1]] = true
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(written)) {
		if !explained[reason] {
			t.Errorf("docs/troubleshooting.md does not explain %s, which %s writes", reason, written[reason])
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(explained)) {
		if written[reason] == "" {
			t.Errorf("docs/troubleshooting.md explains %s, which nothing writes", reason)
		}
	}
	for _, known := range []string{"OOMKilled", "NoSupportingRuntime", "ChildRepaired", "HttpRouteFailed", "InferenceServiceReady", "InvalidGPUAllocation", "PodFailed"} {
		if written[known] == "" {
			t.Errorf("%s was not found in the code", known)
		}
	}
}

func writtenReasons(t *testing.T) map[string]string {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, "./internal/...", "./cmd/...")
	if err != nil {
		t.Fatal(err)
	}
	all := reasons{found: map[string]string{}}
	for _, pkg := range loaded {
		for _, err := range pkg.Errors {
			t.Error(err)
		}
		if notOfConditions.MatchString(pkg.PkgPath) {
			continue
		}
		all.pkg = pkg
		for _, file := range pkg.Syntax {
			ast.Inspect(file, all.look)
		}
	}
	return all.found
}

// look takes whatever goes by the name of a reason: parameters, fields, variables, results, constants.
func (r *reasons) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		if sig, ok := r.pkg.TypesInfo.TypeOf(n.Fun).(*types.Signature); ok {
			for i, arg := range n.Args {
				if i < sig.Params().Len() && isReason(sig.Params().At(i).Name()) {
					r.note(arg)
				}
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (isReason(key.Name) || strings.HasSuffix(key.Name, "ReadyEvent")) {
			r.note(n.Value)
		} else if ok && strings.HasSuffix(key.Name, "Reasons") {
			r.entries(n.Value)
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			// A failure has a reason for modelStatus, and may have another for the condition.
			if name := lastName(left); len(n.Lhs) == len(n.Rhs) && (isReason(name) || name == "Condition") {
				r.note(n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i < len(n.Values) && (isReason(name.Name) || strings.HasPrefix(strings.ToLower(name.Name), "reason")) {
				r.note(n.Values[i])
			}
		}
	case *ast.FuncDecl:
		r.results(n)
	}
	return true
}

func isReason(name string) bool {
	return slices.Contains([]string{"reason", "event", "instead"}, strings.ToLower(name))
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// entries are the values of a map of reasons.
func (r *reasons) entries(e ast.Expr) {
	if lit, ok := e.(*ast.CompositeLit); ok {
		for _, elt := range lit.Elts {
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				r.note(kv.Value)
			}
		}
	}
}

// results are what a function returns under that name.
func (r *reasons) results(f *ast.FuncDecl) {
	if f.Type.Results == nil || f.Body == nil {
		return
	}
	at, position := -1, 0
	for _, field := range f.Type.Results.List {
		for _, name := range field.Names {
			if isReason(name.Name) {
				at = position
			}
			position++
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if ret, ok := n.(*ast.ReturnStmt); ok && at >= 0 && len(ret.Results) == position {
			r.note(ret.Results[at])
		}
		_, literal := n.(*ast.FuncLit)
		return !literal
	})
}

func (r *reasons) note(e ast.Expr) {
	tv := r.pkg.TypesInfo.Types[e]
	if tv.Value == nil || tv.Value.Kind() != constant.String {
		return
	}
	if word := constant.StringVal(tv.Value); reasonWord.MatchString(word) {
		r.found[word] = r.pkg.PkgPath
	}
}
