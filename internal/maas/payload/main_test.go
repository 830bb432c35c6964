// SPDX-License-Identifier: Apache-2.0

package payload_test

import (
	"testing"

	"github.com/modelplane/modelplane/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
