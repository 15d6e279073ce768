"""A media tool: the bytes go into the content store, and the result holds nothing but their address."""

import os


async def run(input, ctx):
    reply = await ctx.fetch(input["url"], headers={"Authorization": f"Bearer {os.environ['IMAGES_TOKEN']}"})
    return {"caption": "CPU today", "image": await ctx.put(reply.body, "image/png")}
