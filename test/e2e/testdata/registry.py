# SPDX-License-Identifier: Apache-2.0
"""What a data scientist does with a model registry: registry.py ADDRESS register URI, or registry.py ADDRESS read URI."""

import sys

from model_registry import ModelRegistry

address, does, uri = sys.argv[1:]
host, port = address.rsplit(":", 1)
registry = ModelRegistry(server_address=host, port=int(port), author="ada", is_secure=False)

if does == "register":
    model = registry.register_model(
        "iris", uri, version="v1", model_format_name="onnx", model_format_version="1",
        version_description="Tells three kinds of iris apart", metadata={"accuracy": 0.97, "classes": 3, "public": True, "team": "it's us"},
    )
    print(f"model={model.id}")

model = registry.get_registered_model("iris")
version = registry.get_model_version("iris", "v1")
artifact = registry.get_model_artifact("iris", "v1")
assert model and version and artifact, (model, version, artifact)
assert version.author == "ada", version
assert version.custom_properties == {"accuracy": 0.97, "classes": 3, "public": True, "team": "it's us"}, version.custom_properties
assert artifact.uri == uri and artifact.model_format_name == "onnx", artifact

if does == "register":
    version.description = "changed"
    registry.update(version)
assert registry.get_model_version("iris", "v1").description == "changed"
names = [m.name for m in registry.get_registered_models().page_size(1)]
assert names == ["iris"], names
print(f"version={version.id}")
print("done")
