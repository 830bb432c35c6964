// SPDX-License-Identifier: Apache-2.0

package entry

import "strings"

// LicenseName is what a person calls a licence. What is not known is shown as it is.
func LicenseName(id string) string {
	if name, ok := licenses[strings.ToLower(strings.TrimSpace(id))]; ok {
		return name
	}
	return id
}

// licenses under which models and servers are published, by their identifiers in lower case.
var licenses = map[string]string{
	"0bsd":                      "BSD Zero Clause License",
	"afl-3.0":                   "Academic Free License v3.0",
	"agpl-3.0":                  "GNU Affero General Public License v3.0",
	"agpl-3.0-only":             "GNU Affero General Public License v3.0 only",
	"agpl-3.0-or-later":         "GNU Affero General Public License v3.0 or later",
	"apache-2.0":                "Apache License 2.0",
	"artistic-2.0":              "Artistic License 2.0",
	"bigcode-openrail-m":        "BigCode Open RAIL-M v1",
	"bigscience-bloom-rail-1.0": "BigScience BLOOM RAIL 1.0",
	"bigscience-openrail-m":     "BigScience Open RAIL-M",
	"bsd-2-clause":              `BSD 2-Clause "Simplified" License`,
	"bsd-3-clause":              `BSD 3-Clause "New" or "Revised" License`,
	"bsd-3-clause-clear":        "BSD 3-Clause Clear License",
	"bsl-1.0":                   "Boost Software License 1.0",
	"busl-1.1":                  "Business Source License 1.1",
	"cc-by-3.0":                 "Creative Commons Attribution 3.0 Unported",
	"cc-by-4.0":                 "Creative Commons Attribution 4.0 International",
	"cc-by-nc-4.0":              "Creative Commons Attribution Non Commercial 4.0 International",
	"cc-by-nc-nd-4.0":           "Creative Commons Attribution Non Commercial No Derivatives 4.0 International",
	"cc-by-nc-sa-4.0":           "Creative Commons Attribution Non Commercial Share Alike 4.0 International",
	"cc-by-nd-4.0":              "Creative Commons Attribution No Derivatives 4.0 International",
	"cc-by-sa-3.0":              "Creative Commons Attribution Share Alike 3.0 Unported",
	"cc-by-sa-4.0":              "Creative Commons Attribution Share Alike 4.0 International",
	"cc0-1.0":                   "Creative Commons Zero v1.0 Universal",
	"cdla-permissive-1.0":       "Community Data License Agreement Permissive 1.0",
	"cdla-permissive-2.0":       "Community Data License Agreement Permissive 2.0",
	"cdla-sharing-1.0":          "Community Data License Agreement Sharing 1.0",
	"creativeml-openrail-m":     "CreativeML Open RAIL-M",
	"deepfloyd-if-license":      "DeepFloyd IF License",
	"ecl-2.0":                   "Educational Community License v2.0",
	"epl-1.0":                   "Eclipse Public License 1.0",
	"epl-2.0":                   "Eclipse Public License 2.0",
	"eupl-1.1":                  "European Union Public License 1.1",
	"eupl-1.2":                  "European Union Public License 1.2",
	"gemma":                     "Gemma Terms of Use",
	"gfdl":                      "GNU Free Documentation License",
	"gpl-2.0":                   "GNU General Public License v2.0 only",
	"gpl-2.0-only":              "GNU General Public License v2.0 only",
	"gpl-2.0-or-later":          "GNU General Public License v2.0 or later",
	"gpl-3.0":                   "GNU General Public License v3.0 only",
	"gpl-3.0-only":              "GNU General Public License v3.0 only",
	"gpl-3.0-or-later":          "GNU General Public License v3.0 or later",
	"isc":                       "ISC License",
	"lgpl-2.1":                  "GNU Lesser General Public License v2.1 only",
	"lgpl-3.0":                  "GNU Lesser General Public License v3.0 only",
	"lgpl-3.0-only":             "GNU Lesser General Public License v3.0 only",
	"lgpl-3.0-or-later":         "GNU Lesser General Public License v3.0 or later",
	"llama2":                    "Llama 2 Community License Agreement",
	"llama3":                    "Llama 3 Community License Agreement",
	"llama3.1":                  "Llama 3.1 Community License Agreement",
	"llama3.2":                  "Llama 3.2 Community License Agreement",
	"llama3.3":                  "Llama 3.3 Community License Agreement",
	"llama4":                    "Llama 4 Community License Agreement",
	"mit":                       "MIT License",
	"mit-0":                     "MIT No Attribution",
	"mpl-2.0":                   "Mozilla Public License 2.0",
	"ms-pl":                     "Microsoft Public License",
	"ncsa":                      "University of Illinois/NCSA Open Source License",
	"odbl":                      "Open Data Commons Open Database License v1.0",
	"odc-by":                    "Open Data Commons Attribution License v1.0",
	"ofl-1.1":                   "SIL Open Font License 1.1",
	"openmdw":                   "Open Model, Data and Weights License",
	"openrail":                  "Open RAIL",
	"openrail++":                "Open RAIL++-M",
	"osl-3.0":                   "Open Software License 3.0",
	"pddl":                      "Open Data Commons Public Domain Dedication and License 1.0",
	"postgresql":                "PostgreSQL License",
	"unlicense":                 "The Unlicense",
	"wtfpl":                     "Do What The F*ck You Want To Public License",
	"zlib":                      "zlib License",
}
