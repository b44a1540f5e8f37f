"""Reads all objects of a prefix with one package, for `tierfeed-bench objects`.

Called with the package and the endpoint. Says `ready VERSION` or `absent REASON`, then answers each line
`PREFIX OBJECTS REQUESTS` with a line of JSON, until its input ends.
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

BUCKET = "bucket"


def keys(prefix, objects):
    return [f"{prefix}/{number:06}" for number in range(objects)]


def obstore(endpoint):
    import obstore as package
    from obstore.store import S3Store

    options = {"allow_http": True}
    store = S3Store(
        BUCKET, endpoint=endpoint, region="us-east-1", skip_signature=True, client_options=options
    )

    async def read_all(prefix, objects, requests):
        left = iter(keys(prefix, objects))

        async def runner():
            total = 0
            for key in left:
                answer = await package.get_async(store, key)
                total += len(await answer.bytes_async())
            return total

        return sum(await asyncio.gather(*(runner() for _ in range(requests))))

    loop = asyncio.new_event_loop()
    return lambda *what: loop.run_until_complete(read_all(*what))


def threads(read):
    """One thread for each request in flight."""
    pools = {}

    def read_all(prefix, objects, requests):
        pool = pools.setdefault(requests, ThreadPoolExecutor(requests))
        return sum(pool.map(read, keys(prefix, objects)))

    return read_all


def boto3(endpoint):
    import boto3 as package
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        signature_version=UNSIGNED, max_pool_connections=64, s3={"addressing_style": "path"}
    )
    client = package.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)
    return threads(lambda key: len(client.get_object(Bucket=BUCKET, Key=key)["Body"].read()))


def s3torchconnector(endpoint):
    from s3torchconnector._s3client import S3Client, S3ClientConfig

    config = S3ClientConfig(force_path_style=True, unsigned=True)
    client = S3Client(region="us-east-1", endpoint=endpoint, s3client_config=config)
    return threads(lambda key: len(client.get_object(BUCKET, key).read()))


def main():
    package, endpoint = sys.argv[1:]
    try:
        clients = {"obstore": obstore, "boto3": boto3, "s3torchconnector": s3torchconnector}
        read_all = clients[package](endpoint)
        print("ready", importlib.metadata.version(package), flush=True)
    except Exception as error:  # whatever hinders it, it is not here
        print("absent", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)
        return
    for line in sys.stdin:
        prefix, objects, requests = line.split()
        began, before = time.perf_counter(), os.times()
        read = read_all(prefix, int(objects), int(requests))
        wall, after = time.perf_counter() - began, os.times()
        cpu = after.user + after.system - before.user - before.system
        print(json.dumps({"bytes": read, "wall_s": wall, "cpu_s": cpu}), flush=True)


if __name__ == "__main__":
    main()
