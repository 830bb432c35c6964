// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// code marks text as code, also when it holds the mark itself. Nothing stays nothing.
func code(text string) string {
	switch {
	case text == "":
		return ""
	case strings.Contains(text, "`"):
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

func codes(texts []string) string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		if text == "" {
			text = `""`
		}
		out = append(out, code(text))
	}
	return strings.Join(out, ", ")
}

// cell makes text fit into one cell of a table.
func cell(text string) string { return strings.ReplaceAll(oneLine(text), "|", `\|`) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// anchor is the name under which a heading can be linked to.
func anchor(words ...string) string { return strings.ToLower(strings.Join(words, "-")) }
