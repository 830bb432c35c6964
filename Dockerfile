# syntax=docker/dockerfile:1

# For those who have a container engine; `make image` needs none and lays the image out in the same way.
# Build from the root of the repository:
#
#   docker build --build-arg VERSION=v0.1.0 --tag modelplane:v0.1.0 .
#   docker build --build-arg VERSION=v0.1.0 --target modelplane-pod --tag modelplane-pod:v0.1.0 .
#   docker build --build-arg VERSION=v0.1.0 --target modelplane-etcd --tag modelplane-etcd:v0.1.0 .

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
ARG VERSION=unknown COMMIT=unknown DATE=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY api api
COPY charts charts
COPY cmd cmd
COPY internal internal
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    export CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH; \
    ldflags="-s -w -buildid= \
      -X github.com/modelplane/modelplane/internal/version.version=$VERSION \
      -X github.com/modelplane/modelplane/internal/version.commit=$COMMIT \
      -X github.com/modelplane/modelplane/internal/version.date=$DATE"; \
    go build -trimpath -buildvcs=false -ldflags "$ldflags" -o /bin/ ./cmd/modelplane \
 && go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "$ldflags" -o /bin/ ./cmd/modelplane-pod \
 && chmod 0555 /bin/modelplane /bin/modelplane-pod \
 && mkdir /program && mv /bin/modelplane /program/ && ln -s modelplane /program/model-registry \
 && mkdir -p /out/etc/ssl/certs \
 && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ \
 && printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' > /out/etc/passwd \
 && printf 'root:x:0:\nnonroot:x:65532:\n' > /out/etc/group

FROM build AS build-etcd
ARG TARGETOS TARGETARCH
COPY runtimes/etcd runtimes/etcd
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    cd runtimes/etcd && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -buildid=" -o /bin/modelplane-etcd ./cmd/modelplane-etcd && chmod 0555 /bin/modelplane-etcd

FROM scratch AS modelplane-etcd
COPY --from=build-etcd /out/ /
COPY --from=build-etcd /bin/modelplane-etcd /
ARG VERSION=unknown COMMIT=unknown
LABEL org.opencontainers.image.title="modelplane-etcd" \
      org.opencontainers.image.description="One control plane for models on Kubernetes" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.source="https://github.com/modelplane/modelplane" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/modelplane-etcd"]

FROM scratch AS modelplane-pod
COPY --from=build /out/ /
COPY --from=build /bin/modelplane-pod /
ARG VERSION=unknown COMMIT=unknown
LABEL org.opencontainers.image.title="modelplane-pod" \
      org.opencontainers.image.description="One control plane for models on Kubernetes" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.source="https://github.com/modelplane/modelplane" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/modelplane-pod"]

FROM scratch AS modelplane
COPY --from=build /out/ /
COPY --from=build /program/ /
ARG VERSION=unknown COMMIT=unknown
LABEL org.opencontainers.image.title="modelplane" \
      org.opencontainers.image.description="One control plane for models on Kubernetes" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.source="https://github.com/modelplane/modelplane" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/modelplane"]
