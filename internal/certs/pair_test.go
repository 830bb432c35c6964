// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"testing"
	"time"
)

func TestPair(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hosts := []string{"mlflow.models.svc", "localhost"}
	first, err := NewPair(now, "mlflow", hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := first.RenewAt(now, hosts)
	if err != nil || at.Before(now.Add(200*24*time.Hour)) || at.After(now.Add(300*24*time.Hour)) {
		t.Errorf("renewed at %s (%v), want it to be after about two thirds of a year", at, err)
	}
	if _, err := first.RenewAt(now, []string{"other"}); err == nil {
		t.Error("a pair that is not good for the host counts as good")
	}
	if _, err := first.RenewAt(now.Add(400*24*time.Hour), hosts); err == nil {
		t.Error("a pair that has expired counts as good")
	}
	second, err := NewPair(now.Add(250*24*time.Hour), "mlflow", hosts, first.Roots)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := decodeCertificates(second.Roots)
	if err != nil || len(roots) != 2 {
		t.Fatalf("%d roots (%v), want the new and the earlier one", len(roots), err)
	}
	old, err := tls.X509KeyPair(first.Certificate, first.Key)
	if err != nil {
		t.Fatal(err)
	}
	if issuerOf(old.Leaf, roots, now.Add(251*24*time.Hour)) == nil {
		t.Error("the earlier certificate is not trusted while the server still has it")
	}
	third, err := NewPair(now.Add(500*24*time.Hour), "mlflow", hosts, second.Roots)
	if err != nil {
		t.Fatal(err)
	}
	if roots, err := decodeCertificates(third.Roots); err != nil || len(roots) != 2 {
		t.Errorf("%d roots (%v): they add up", len(roots), err)
	}
	for name, broken := range map[string]Pair{
		"no roots": {Certificate: first.Certificate, Key: first.Key}, "no key": {Roots: first.Roots, Certificate: first.Certificate},
		"another key":  {Roots: first.Roots, Certificate: first.Certificate, Key: second.Key},
		"another root": {Roots: third.Roots, Certificate: first.Certificate, Key: first.Key},
	} {
		if _, err := broken.RenewAt(now, hosts); err == nil {
			t.Errorf("%s: counts as good", name)
		}
	}
}
