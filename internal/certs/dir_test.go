// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelplane/modelplane/internal/testkit"
)

// mount writes the files the way a mounted Secret does: into a directory of their own, reached through a link that is
// swapped.
func mount(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	data, err := os.MkdirTemp(dir, "..data-")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(data, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, name)
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink(filepath.Join("..data", name), link); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// files makes what cert-manager or an administrator would put into the directory.
func files(t *testing.T, host string) map[string][]byte {
	t.Helper()
	now, l := time.Now(), Lifetimes{}.withDefaults()
	signer, err := newAuthority(now, l, webhookSubject)
	if err != nil {
		t.Fatal(err)
	}
	s, err := state{roots: nil, signer: signer}.issue(now, l, []string{host})
	if err != nil {
		t.Fatal(err)
	}
	s.roots = append(s.roots, signer.cert)
	data, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	delete(data, keySigner)
	delete(data, keyRotation)
	return data
}

func TestDirServesInjectsAndFollows(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	first := files(t, b.address.Hostname())
	mount(t, dir, first)
	keeper := b.keeper(b.cluster.Config(), Options{Source: Dir, Dir: dir, Log: testLog(t)})
	b.run(keeper)
	b.ready(keeper)
	b.behind(keeper)
	injected := func(want []byte) func() error {
		return func() error {
			if !bytes.Equal(b.clientConfig().CABundle, want) {
				return errors.New("caBundle is not the file's")
			}
			return b.admit(t.Context())
		}
	}
	testkit.Eventually(t, patience, "the first roots", injected(first[keyRoots]))

	second := files(t, b.address.Hostname())
	mount(t, dir, second)
	// Well before the files would be read anyway.
	testkit.Eventually(t, reread/2, "the second roots", injected(second[keyRoots]))

	// A pair that does not belong together is refused, and the old one stays.
	mount(t, dir, map[string][]byte{keyServing: first[keyServing], keyPrivate: second[keyPrivate], keyRoots: second[keyRoots]})
	testkit.Quiet(t, time.Second, "the second certificate", injected(second[keyRoots]))
}

func TestCertManagerInjectsNothing(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	data := files(t, b.address.Hostname())
	mount(t, dir, data)
	keeper := b.keeper(b.cluster.Config(), Options{Source: CertManager, Dir: dir, Log: testLog(t)})
	b.run(keeper)
	b.ready(keeper)
	cert, err := keeper.GetCertificate(nil)
	if err != nil || !bytes.Equal(encodeCertificates([]*x509.Certificate{cert.Leaf}), data[keyServing]) {
		t.Errorf("GetCertificate = %v, %v; want the certificate of the directory", cert, err)
	}
	testkit.Eventually(t, patience, "the address", func() error {
		if c := b.clientConfig(); c.URL == nil {
			return errors.New("no URL yet")
		}
		return nil
	})
	if got := b.clientConfig().CABundle; got != nil {
		t.Errorf("caBundle has %d bytes, want it left to cert-manager", len(got))
	}
	if _, err := b.findSecret(); err == nil {
		t.Error("a Secret was made although certificates come from files")
	}
}

func TestDirRefusesAtStart(t *testing.T) {
	b := newBench(t)
	good := files(t, "host")
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string
	}{
		{"nothing there", nil, "read the serving certificate"},
		{"no key", map[string][]byte{keyServing: good[keyServing]}, "read the serving key"},
		{"junk", map[string][]byte{keyServing: []byte("x"), keyPrivate: []byte("secret-material")}, "do not belong together"},
		{"junk roots", map[string][]byte{keyServing: good[keyServing], keyPrivate: good[keyPrivate], keyRoots: []byte("x")}, "ca.crt in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.files != nil {
				mount(t, dir, c.files)
			}
			keeper := b.keeper(b.cluster.Config(), Options{Source: Dir, Dir: dir, Log: testLog(t)})
			err := keeper.Run(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret-material") {
				t.Errorf("Run = %v, want an error that says %q", err, c.want)
			}
		})
	}
}
