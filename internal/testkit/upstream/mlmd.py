# SPDX-License-Identifier: Apache-2.0
"""The store of ML Metadata as a gRPC server, from the library in its Python package.

usage: mlmd.py PORT < connection

It stands in for the server that is only shipped as an image. Standard input is the connection to the database as a JSON
object (host, port, database, user, password). Requests go to the library as they come, and its answers back: nothing
here knows what they mean.
"""

import json
import sys
import threading
from concurrent import futures

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as library
from ml_metadata.proto import metadata_store_pb2

CODES = {code.value[0]: code for code in grpc.StatusCode}


class Service(grpc.GenericRpcHandler):
    def __init__(self, connection):
        config = metadata_store_pb2.ConnectionConfig()
        for key, value in connection.items():
            setattr(config.mysql, key, value)
        self.config = config.SerializeToString()
        self.local = threading.local()
        self.store()  # makes the tables, before anybody is let in

    def store(self):
        """Each thread has a connection of its own: the library does not share one."""
        if not hasattr(self.local, "store"):
            self.local.store = library.CreateMetadataStore(self.config, b"")
        return self.local.store

    def service(self, call):
        method = getattr(library, call.method.rsplit("/", 1)[-1], None)
        if method is None:
            return None

        def answer(request, context):
            response, message, code = method(self.store(), request)
            if code != 0:
                context.abort(CODES[code], message.decode("utf-8", "replace"))
            return response

        return grpc.unary_unary_rpc_method_handler(answer)


def main():
    service = Service(json.load(sys.stdin))
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((service,))
    if server.add_insecure_port("127.0.0.1:" + sys.argv[1]) == 0:
        sys.exit("cannot listen on port " + sys.argv[1])
    server.start()
    server.wait_for_termination()


main()
