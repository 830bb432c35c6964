// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/modelplane/modelplane/internal/fetch/dest"
	"github.com/modelplane/modelplane/internal/fetch/modelregistry"
	"github.com/modelplane/modelplane/internal/fetch/transfer"
	"github.com/modelplane/modelplane/internal/kube/address"
)

// Failure is why a model could not be fetched: one sentence for the person who must act.
type Failure struct {
	sentence string
	err      error
}

func (f *Failure) Error() string { return f.sentence }

func (f *Failure) Unwrap() error { return f.err }

// longest bounds a sentence; what is made of it elsewhere keeps 500 bytes.
const longest = 440

func newFailure(source string, err error, env func(string) string) *Failure {
	text := err.Error()
	var limit *dest.TooLarge
	switch {
	case errors.Is(err, context.Canceled):
		text = "it was stopped before it was done"
	case errors.As(err, &limit):
		text += "; use a smaller model, or raise the limit"
	}
	text = strings.TrimPrefix(text, path.Base(address.Shown(source))+": ") // of a single file the address says it
	text = "Cannot fetch " + address.Shown(source) + ": " + strings.Join(strings.Fields(text), " ")
	text = redact(address.Hide(strings.TrimRight(text, ".")), env)
	if len(text) > longest {
		cut := longest
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return &Failure{sentence: text + ".", err: err}
}

// secrets are variables whose values must never show, whatever brought them into a message.
var secrets = []string{
	"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "AZ_CLIENT_SECRET", "AZURE_STORAGE_ACCESS_KEY",
	"AZURE_ACCESS_TOKEN", "HF_TOKEN", "MODELSCOPE_API_TOKEN", "STORAGE_CONFIG",
	modelregistry.EnvToken,
}

func redact(text string, env func(string) string) string {
	for _, name := range secrets {
		if value := strings.TrimSpace(env(name)); len(value) >= 8 {
			text = strings.ReplaceAll(text, value, "…")
		}
	}
	return text
}

// advised adds what to do next, where the storage knows.
func advised(err error, from interface{ Next(status int) string }) error {
	var p *transfer.Problem
	if !errors.As(err, &p) {
		return err
	}
	if next := from.Next(p.Status); next != "" {
		return &advice{err, next}
	}
	return err
}

type advice struct {
	error
	next string
}

func (a *advice) Error() string { return a.error.Error() + "; " + a.next }

func (a *advice) Unwrap() error { return a.error }

// Tell writes the sentence to where Kubernetes looks for a container's last words. Without a pod there is no such file,
// and none is made.
func Tell(file string, err error) error {
	f, failed := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(failed, fs.ErrNotExist) {
		return nil
	}
	if failed != nil {
		return failed
	}
	_, failed = f.WriteString(err.Error())
	return errors.Join(failed, f.Close())
}
