// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the certificate that the webhook and metrics endpoints serve, and the trust that the API server
// needs to call the webhooks.
//
// In self mode everything lives in one Secret: the trusted roots (ca.crt), the key of the authority that signs
// (ca.key), the serving certificate (tls.crt, tls.key) and how far a rotation got (rotation.json). Any replica may
// take the next step; optimistic concurrency lets exactly one of them win and the others read what it wrote. The steps
// are ordered so that at no moment a certificate is served that the API server does not trust yet, or still needs:
//
//  1. A new authority joins the roots, next to the old one. Nothing else changes.
//  2. The roots are written to every webhook configuration and CRD conversion of ours, and confirmed by a live read.
//  3. After a while in which every API server has seen them, a serving certificate of the new authority is issued.
//     Every replica picks it up from its watch on the Secret.
//  4. The time at which the certificate was seen in the Secret is noted. After a longer while from then, in which every
//     replica has picked it up, the old authority leaves the roots.
//
// Because each step is a single write and the next one follows from what the Secret says, a crash anywhere resumes.
// A Secret that is deleted or overwritten with something unusable is treated as a wish for a new authority: replicas
// carry over what they serve and go through the same four steps.
//
// In dir and cert-manager mode the certificate comes from files; dir mode also hands ca.crt to the API server.
//
// This package must not know what the webhooks do, and it must never log, return or print a private key.
package certs
