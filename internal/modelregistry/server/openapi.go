// SPDX-License-Identifier: Apache-2.0

package server

import (
	"maps"
	"slices"
	"strings"

	"github.com/modelplane/modelplane/internal/modelregistry/server/entity"
	"github.com/modelplane/modelplane/internal/version"
)

type object = map[string]any

// document describes the API, made from the same tables as the API itself.
func document() any {
	paths := object{}
	for _, c := range collections() {
		paths[Base+"/"+c.plural] = object{"get": listing(c.kinds, false), "post": creating(c.kinds, false)}
		paths[Base+"/"+c.plural+"/{id}"] = object{
			"parameters": []any{inPath()},
			"get":        operation("Read one "+noun(c.kinds), nil, replies(c.kinds, "200", "400", "404")),
			"patch": body(operation("Change one "+noun(c.kinds)+"; what is not in the body stays", []any{header("If-Match")},
				replies(c.kinds, "200", "400", "404", "409", "412")), c.kinds, ""),
		}
		if c.singular != "" {
			paths[Base+"/"+c.singular] = object{"get": operation("Find one "+noun(c.kinds)+" by its name or externalId", finding(c.kinds[0]), replies(c.kinds, "200", "400", "404"))}
		}
	}
	for _, n := range belows() {
		paths[Base+"/"+n.of.plural+"/{id}/"+n.below] = object{
			"parameters": []any{inPath()}, "get": listing(n.kinds, true), "post": creating(n.kinds, true),
		}
	}
	history := listing([]*entity.Kind{metricHistory}, true)
	history["parameters"] = append(history["parameters"].([]any), query("stepIds", "string")) //nolint:forcetypeassert // listing makes it
	paths[Base+"/experiment_runs/metric_history"] = object{"get": history}
	paths[Base+"/experiment_runs/{id}/metric_history"] = object{"parameters": []any{inPath()}, "get": history}
	for below, kind := range map[string]*entity.Kind{"model": model, "version": modelVersion} {
		paths[Base+"/inference_services/{id}/"+below] = object{
			"parameters": []any{inPath()},
			"get":        operation("Read the "+kind.Name+" that is served", nil, replies([]*entity.Kind{kind}, "200", "404")),
		}
	}
	return object{
		"openapi": "3.0.3",
		"info":    object{"title": "Model Registry REST API", "version": "v1alpha3", "description": "Served by Modelplane " + version.Get().Version},
		"paths":   paths, "components": object{"schemas": schemas()},
	}
}

func operation(summary string, parameters []any, responses object) object {
	out := object{"summary": summary, "responses": responses}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	return out
}

func inPath() object {
	return object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string", "pattern": "^[0-9]+$"}}
}

func query(name, typ string, words ...string) object {
	schema := object{"type": typ}
	if len(words) > 0 {
		schema["enum"] = words
	}
	return object{"name": name, "in": "query", "schema": schema}
}

func header(name string) object {
	return object{"name": name, "in": "header", "schema": object{"type": "string"}}
}

func finding(k *entity.Kind) []any {
	out := []any{query("name", "string"), query("externalId", "string")}
	if k.Prefixed() {
		out = append(out, query("parentResourceId", "string"))
	}
	return out
}

func listing(kinds []*entity.Kind, below bool) object {
	parameters := []any{
		query("filterQuery", "string"), query("pageSize", "string"), query("orderBy", "string", "CREATE_TIME", "LAST_UPDATE_TIME", "ID"),
		query("sortOrder", "string", "ASC", "DESC"), query("nextPageToken", "string"),
	}
	if below {
		parameters = append(parameters, query("name", "string"), query("externalId", "string"))
	}
	if len(kinds) > 1 {
		parameters = append(parameters, query("artifactType", "string", artifactTypes(kinds)...))
	}
	page := object{"type": "object", "required": []string{"items", "nextPageToken", "pageSize", "size"}, "properties": object{
		"items": object{"type": "array", "items": schemaOf(kinds, "")}, "nextPageToken": object{"type": "string"},
		"pageSize": object{"type": "integer"}, "size": object{"type": "integer"},
	}}
	responses := replies(nil, "400", "404")
	responses["200"] = object{"description": "A page of them", "content": content(page)}
	return operation("List every "+noun(kinds), parameters, responses)
}

func creating(kinds []*entity.Kind, below bool) object {
	codes := []string{"201", "400", "409", "422"}
	if below {
		codes = append(codes, "200", "404")
	}
	return body(operation("Make one "+noun(kinds), nil, replies(kinds, codes...)), kinds, "Create")
}

func body(op object, kinds []*entity.Kind, suffix string) object {
	op["requestBody"] = object{"required": true, "content": content(schemaOf(kinds, suffix))}
	return op
}

func content(schema object) object { return object{"application/json": object{"schema": schema}} }

func schemaOf(kinds []*entity.Kind, suffix string) object {
	if len(kinds) == 1 {
		return ref(kinds[0].Name + suffix)
	}
	var each []any
	for _, k := range kinds {
		each = append(each, ref(k.Name+suffix))
	}
	return object{"oneOf": each}
}

func ref(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// replies are the answers with their codes; those that succeed have an entity.
func replies(kinds []*entity.Kind, codes ...string) object {
	words := map[string]string{
		"200": "The entity", "201": "The entity that was made", "400": "Something in the request is wrong", "404": "There is no such entity",
		"409": "Another entity has this name or externalId", "412": "Somebody else has changed it meanwhile", "422": "A field is missing",
	}
	out := object{
		"401": object{"description": "Nobody knows who calls"}, "403": object{"description": "The caller may not"},
		"503": object{"description": "The database does not answer", "content": content(ref("Error"))},
	}
	for _, code := range codes {
		schema := ref("Error")
		if strings.HasPrefix(code, "2") {
			schema = schemaOf(kinds, "")
		}
		out[code] = object{"description": words[code], "content": content(schema)}
	}
	return out
}

// schemas are those of all kinds, as they are read and as they are made.
func schemas() object {
	out := object{
		"Error": object{"type": "object", "properties": object{"code": object{"type": "string"}, "message": object{"type": "string"}}},
	}
	for metadataType, holds := range entity.Metadata() {
		out[metadataType] = object{"type": "object", "required": []string{"metadataType", holds}, "properties": object{
			"metadataType": object{"type": "string", "enum": []string{metadataType}}, holds: object{"type": valueType[holds]},
		}}
	}
	for _, k := range entity.Kinds {
		out[k.Name], out[k.Name+"Create"] = kindSchema(k, false), kindSchema(k, true)
	}
	return out
}

var valueType = map[string]string{
	"string_value": "string", "int_value": "string", "double_value": "number", "bool_value": "boolean", "struct_value": "string",
}

func kindSchema(k *entity.Kind, create bool) object {
	var values []any
	for _, name := range slices.Sorted(maps.Keys(entity.Metadata())) {
		values = append(values, ref(name))
	}
	properties := object{
		"name": object{"type": "string"}, "externalId": object{"type": "string"}, "description": object{"type": "string"},
		"customProperties": object{"type": "object", "additionalProperties": object{"oneOf": values}},
	}
	var required []string
	if k.NeedsName {
		required = append(required, "name")
	}
	if k.ArtifactType != "" {
		properties["artifactType"] = object{"type": "string", "enum": []string{k.ArtifactType}}
	}
	for _, f := range k.Fields {
		properties[f.Name] = fieldSchema(f)
		if f.Required {
			required = append(required, f.Name)
		}
	}
	if !create {
		for _, name := range []string{"id", "createTimeSinceEpoch", "lastUpdateTimeSinceEpoch"} {
			properties[name] = object{"type": "string", "readOnly": true}
		}
	}
	out := object{"type": "object", "properties": properties}
	if create && len(required) > 0 {
		out["required"] = required
	}
	return out
}

func fieldSchema(f entity.Field) object {
	out := object{"type": "string"}
	switch f.Type {
	case entity.Step:
		out["type"] = "integer"
	case entity.Double:
		out["type"] = "number"
	case entity.Texts:
		out["type"], out["items"] = "array", object{"type": "string"}
	}
	if f.Words != nil {
		out["enum"] = f.Words
	}
	if f.Default != "" {
		out["default"] = f.Default
	}
	if f.At == entity.InPath {
		out["readOnly"] = true
	}
	return out
}
