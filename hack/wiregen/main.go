// SPDX-License-Identifier: Apache-2.0

// Command wiregen writes the Go form of every .proto file of the project, beside it. It needs no protoc: the files are
// compiled here, and the two generators are tools of this module.
//
//	go run ./hack/wiregen         write the files
//	go run ./hack/wiregen -check  fail when a file would change
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/pluginpb"

	"github.com/modelplane/modelplane/hack/internal/output"
)

// generators are run in turn on each file.
var generators = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	check := flag.Bool("check", false, "write nothing, fail when a file would change")
	flag.Parse()
	if err := run(context.Background(), ".", *check, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "wiregen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, check bool, report io.Writer) error {
	sources, err := protos(dir)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, source := range sources {
		if err := generate(ctx, dir, source, files); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return output.Set{Dir: dir, Files: files, Command: "go run ./hack/wiregen"}.Put(check, report)
}

// protos are the files below dir, whatever room they are in. What was built or fetched is not ours.
func protos(dir string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != dir && (strings.HasPrefix(name, ".") || name == "dist" || name == "bin" || name == "testdata") {
			return fs.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(name, ".proto") {
			relative, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			found = append(found, relative)
		}
		return nil
	})
	return found, err
}

// generate compiles one file. It is known by its path from the project's root, so that a program can hold several of one name.
func generate(ctx context.Context, dir, source string, files map[string][]byte) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, filepath.ToSlash(source))
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{filepath.ToSlash(source)},
		Parameter:      proto.String("paths=source_relative"),
	}
	for _, file := range compiled {
		imports := file.Imports()
		for i := range imports.Len() {
			request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(imports.Get(i).FileDescriptor))
		}
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(file))
	}
	for _, generator := range generators {
		if err := generated(ctx, dir, generator, request, files); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

func generated(ctx context.Context, dir, generator string, request *pluginpb.CodeGeneratorRequest, files map[string][]byte) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	var told bytes.Buffer
	command := exec.CommandContext(ctx, "go", "tool", generator)
	command.Dir, command.Stdin, command.Stderr = dir, bytes.NewReader(input), &told
	answer, err := command.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(told.Bytes()))
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(answer, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.File {
		files[file.GetName()] = []byte(file.GetContent())
	}
	return nil
}
