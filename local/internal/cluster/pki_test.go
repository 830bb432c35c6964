// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// snapshot is the content of every file in a directory.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

func changed(before, after map[string]string) []string {
	var names []string
	for _, s := range certSpecs {
		if before[s.name+".crt"] != after[s.name+".crt"] {
			names = append(names, s.name)
		}
	}
	return names
}

func TestPKIIsMadeOnceAndRenewedInTime(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	if _, err := ensurePKI(dir, now); err != nil {
		t.Fatal(err)
	}
	first := snapshot(t, dir)

	if _, err := ensurePKI(dir, now.Add(200*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, snapshot(t, dir)); diff != "" {
		t.Errorf("valid keys were replaced:\n%s", diff)
	}

	if _, err := ensurePKI(dir, now.Add(certLifetime-renewBefore/2)); err != nil {
		t.Fatal(err)
	}
	renewed := snapshot(t, dir)
	if got := changed(first, renewed); len(got) != len(certSpecs) {
		t.Errorf("renewed only %v", got)
	}
	for _, name := range []string{caCluster + ".crt", caEtcd + ".crt", caFrontProxy + ".crt", keyServiceAccounts + ".key"} {
		if first[name] != renewed[name] {
			t.Errorf("%s was replaced, which would cut off everybody who trusts it", name)
		}
	}
}

func TestPKIRepairsWhatIsDamagedAndNothingElse(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	p, err := ensurePKI(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	first := snapshot(t, dir)
	for _, damage := range []func() error{
		func() error { return os.Remove(p.key(certScheduler)) },
		func() error { return os.WriteFile(p.cert(certScheduler), []byte("not a certificate"), 0o600) },
		func() error { return os.WriteFile(p.cert(certScheduler), []byte(first[certAdmin+".crt"]), 0o600) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := ensurePKI(dir, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{certScheduler}, changed(first, snapshot(t, dir))); diff != "" {
			t.Errorf("wrong certificates replaced:\n%s", diff)
		}
	}
}

func TestCertificatesAreForWhomTheySay(t *testing.T) {
	p, err := ensurePKI(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	authorities := []string{caCluster, caEtcd, caFrontProxy}
	for _, s := range certSpecs {
		pair, err := p.load(s.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, ca := range authorities {
			authority, err := p.load(ca)
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AddCert(authority.Leaf)
			_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if trusted := err == nil; trusted != (ca == s.ca) {
				t.Errorf("%s is trusted by %s: %v", s.name, ca, trusted)
			}
		}
		if diff := cmp.Diff(s.groups, pair.Leaf.Subject.Organization); diff != "" {
			t.Errorf("%s has other groups:\n%s", s.name, diff)
		}
	}
	for name := range snapshot(t, p.dir) {
		info, err := os.Stat(filepath.Join(p.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", name, mode)
		}
	}
}
