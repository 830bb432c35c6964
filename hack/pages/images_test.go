// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestImages holds that every drawing of docs is one that browsers show, and that a page shows it.
func TestImages(t *testing.T) {
	drawings, err := filepath.Glob("docs/images/*.svg")
	if err != nil || len(drawings) == 0 {
		t.Fatalf("no drawings: %v", err)
	}
	shown := map[string]bool{}
	for _, p := range pages(t) {
		for _, l := range p.links {
			shown[filepath.Join(filepath.Dir(p.path), l.text)] = true
		}
	}
	for _, path := range drawings {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(drawing(f), f.Close()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if !shown[path] {
			t.Errorf("no page shows %s", path)
		}
	}
	const head, arrow = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">`, `<path id="a" d="M0 0"/><line marker-end="url(#a)"/>`
	if err := drawing(strings.NewReader(head + arrow + "<text x=\"8\" y=\"8\">a</text></svg>")); err != nil {
		t.Errorf("a good drawing: %v", err)
	}
	for what, text := range map[string]string{
		"nothing": "", "another document": "<html/>", "a tag that stays open": head + "<g></svg>", "words behind it": head + "</svg> & more",
		"no size":                     `<svg xmlns="http://www.w3.org/2000/svg"></svg>`,
		"an arrow that nobody drew":   head + `<line marker-end="url(#a)"/></svg>`,
		"text beside the picture":     head + `<text x="12" y="3">a</text></svg>`,
		"something from another host": head + `<image href="https://example.com/a.png"/></svg>`,
	} {
		if drawing(strings.NewReader(text)) == nil {
			t.Errorf("%s is taken for a drawing", what)
		}
	}
}

const svgSpace = "http://www.w3.org/2000/svg"

var referred = regexp.MustCompile(`^url\(#([^)]+)\)$`)

// drawing says why something is no drawing that can be shown by itself.
func drawing(from io.Reader) error {
	var size []float64
	var ids, wanted []string
	decoder := xml.NewDecoder(from)
	for depth := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch e := token.(type) {
		case xml.EndElement:
			depth--
		case xml.StartElement:
			if depth++; e.Name.Space != svgSpace || depth == 1 && (e.Name.Local != "svg" || size != nil) {
				return fmt.Errorf("<%s> is not expected", e.Name.Local)
			}
			if depth == 1 {
				if size, err = numbers(attribute(e, "viewBox")); err != nil || len(size) != 4 {
					return fmt.Errorf("viewBox is %q", attribute(e, "viewBox"))
				}
			}
			if err := inside(e, size); err != nil {
				return err
			}
			for _, a := range e.Attr {
				if found := referred.FindStringSubmatch(a.Value); found != nil {
					wanted = append(wanted, found[1])
				}
				if a.Name.Local == "id" {
					ids = append(ids, a.Value)
				}
				if a.Name.Local == "href" && !strings.HasPrefix(a.Value, "#") {
					return fmt.Errorf("it needs %s", a.Value)
				}
			}
		}
	}
	if size == nil {
		return errors.New("there is nothing")
	}
	for _, id := range wanted {
		if !slices.Contains(ids, id) {
			return fmt.Errorf("#%s is not there", id)
		}
	}
	return nil
}

// inside says why a text begins where nobody sees it.
func inside(e xml.StartElement, size []float64) error {
	if e.Name.Local != "text" {
		return nil
	}
	at, err := numbers(attribute(e, "x") + " " + attribute(e, "y"))
	if err != nil || len(at) != 2 {
		return fmt.Errorf("a text at %q and %q", attribute(e, "x"), attribute(e, "y"))
	}
	if at[0] < size[0] || at[1] < size[1] || at[0] > size[0]+size[2] || at[1] > size[1]+size[3] {
		return fmt.Errorf("a text at %v is outside of %v", at, size)
	}
	return nil
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func numbers(text string) ([]float64, error) {
	var out []float64
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
