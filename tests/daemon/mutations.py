"""Mistakes that the prefix cache, the host tier, the salts, turns and sleep could have, each made in a copy of the tree, one at a
time: a test must fail, and does not where nothing was changed.

    mutations.py BUILD [WORD...]   builds each beside BUILD and runs its tests; only those with the words in their name
    mutations.py --match           whether all of them still fit the sources, for ctest; builds nothing

Exit code 1: one was not seen, or does not fit any more.
"""

import filecmp
import os
import pathlib
import shutil
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLICA, SERVER, HTTP = "daemon/test_replica", "daemon/test_server", "http/test_http"
GROUP, STOP, WAKE = "daemon/test_group", ("gpu/test_gpu", "stop"), ("gpu/test_gpu_model", "wake")
MEMORY = ("gpu/test_gpu", "memory")
CACHE, TIER = (REPLICA, "sched, prefix cache"), (REPLICA, "sched, host tier")
WANTS = (REPLICA, "sched, who waits")
TIMING, NAMES = (HTTP, "timing"), (SERVER, "prefix cache")
SLEEP = ("sim/test_sim", "--model tests/model/data/llama-default-bf16 --beside "
                         "tests/model/data/mistral-window-bf16,synthetic:null --seeds 1..120")
BUILT = ".build/dev"  # in the copy, by its preset
SECONDS = 600


class Mutation(typing.NamedTuple):
    what: str
    file: str
    changes: list  # (text, text in its place), each once in the file
    tests: list    # each must fail


MUTATIONS = [
    Mutation("a hash without the salt", "daemon/base/prefix_key.c",
             [("    siphash_add(&hash, salt, length);\n", "    (void)salt;\n")], [NAMES, TIMING]),
    Mutation("a salt that is a user's name finds what is the user's", "daemon/base/prefix_key.c",
             [("adapter, kind, length", "adapter, 0 * kind, length")], [NAMES, TIMING]),
    Mutation("whom a router does not name share", "daemon/request/request_builder.c",
             [("(sink->many && !params->cache_salt)", "(sink->many && false)")], [TIMING, (HTTP, "access")]),
    Mutation("constraints of another user are found", "daemon/request/constraint_cache.c",
             [("entry->owner.user != owner->user || ", "")], [(SERVER, "constraint_cache"), (HTTP, "users")]),
    Mutation("a shared block is moved for one owner only", "daemon/sched/sched_memory.c",
             [("            patch(sched, step, seq, g, index, move->to);\n            patched++;",
               "            if (patched++ < 2)\n                patch(sched, step, seq, g, index, move->to);")], [CACHE]),
    Mutation("a block is moved, and the cache has the old one", "daemon/sched/cache.c",
             [("    *block_at(cache, node, group) = to;\n    return true;", "    return true;")], [CACHE]),
    Mutation("a hit lacks a window's block", "daemon/sched/cache.c",
             [("there = fit_window(cache, g, there, ret_node);",
               "there = cache->kv->group[g].window ? there : fit_window(cache, g, there, ret_node);")], [CACHE]),
    Mutation("a window's block is not copied back", "daemon/sched/sched_fetch.c",
             [("                lacks[g] = i + 1;", "                lacks[g] = 0;")], [TIER]),
    Mutation("a block of an old load is found after a reload", "daemon/request/server.c",
             [("served->load = ++server->loads;", "served->load = 1;")], [NAMES]),
    Mutation("a block of an old load is found after a sleep", "daemon/request/model_sleep.c",
             [("model->load = ++server->loads;", "model->load += 0;")], [(SERVER, "sleep")]),
    Mutation("a block of an adapter is found by the next of its name", "daemon/adapters/served_adapters.c",
             [(".load = ++served->loads", ".load = 1")], [NAMES, (HTTP, "adapters")]),
    Mutation("a hit leaves nothing to compute", "daemon/sched/sched_cache.c",
             [("    uint32_t blocks = (seq->prefill_len - 1) / sched->kv.block_tokens;\n    uint32_t appends",
               "    uint32_t blocks = seq->prefill_len / sched->kv.block_tokens;\n    uint32_t appends")], [CACHE]),
    Mutation("a step is sent early though somebody above may come", "daemon/sched/sched_plan.c",
             [("(reads && !sched_expects_above(sched))", "reads")], [(REPLICA, "sched, priorities")]),
    Mutation("who was above others is expected for ever", "daemon/sched/sched_inner.h",
             [(" && sched->now_us <= sched->above_us + SCHED_ABOVE_US", "")], [(REPLICA, "limit"), (REPLICA, "sched, priorities")]),
    Mutation("a step of prompts below is as long as any", "daemon/sched/sched_limit.c",
             [("are_below(sched) ? fmin(itl_us, below_us) : itl_us", "are_below(sched) ? fmax(itl_us, below_us) : itl_us")],
             [(REPLICA, "limit"), (REPLICA, "sched, overload")]),
    Mutation("a step of prompts above is short", "daemon/sched/sched_limit.c",
             [("below = below && sched_level(seq) < sched->above_level;", "below = below && seq->priority < INT32_MAX;")],
             [(REPLICA, "limit")]),
    Mutation("a step of prompts below leaves no time beside decode rows", "daemon/sched/sched_limit.c",
             [("#define BELOW_ROWS 2.0", "#define BELOW_ROWS 1.0")], [(REPLICA, "limit")]),
    Mutation("a shared block is written", "daemon/sched/sched_cache.c",
             [("step, seq, hit * sched->kv.block_tokens);", "step, seq, hit * sched->kv.block_tokens - 1);")], [CACHE]),
    Mutation("a block is freed while a copy reads it", "daemon/sched/sched_tier.c",
             [("        kv_share(&sched->kv, g, block);\n", ""),
              ("        kv_retire(&sched->kv, copies->copies[i].group, copies->copies[i].block, 0);\n",
               "        (void)sched;\n")], [TIER]),
    Mutation("a block is freed while a copy writes it", "daemon/sched/sched_fetch.c",
             [("        cache_keep(&sched->cache, node, g, block);\n",
               "        cache_keep(&sched->cache, node, g, block);\n        kv_retire(&sched->kv, g, block, 0);\n"),
              ("    for (uint32_t i = 0; i < copies->plan.count; i++)\n"
               "        kv_retire(&sched->kv, copies->copies[i].group, copies->copies[i].block, 0);\n", "")], [TIER]),
    Mutation("a block is moved while a copy reads it", "daemon/sched/sched_memory.c",
             [("sched->slabs_due_count > 0 || sched_copies_in_flight(sched) > 0)", "sched->slabs_due_count > 0)")], [TIER]),
    Mutation("host memory is found before its copy has ended", "daemon/sched/sched_tier.c",
             [("    return copies->plan.count > 0 ? &copies->plan : NULL;\n",
               "    for (uint32_t i = 0; way == GPU_TO_HOST && i < copies->count; i++)\n"
               "        tier_put_ended(&sched->tier, copies->copied[i].tier, true);\n"
               "    return copies->plan.count > 0 ? &copies->plan : NULL;\n"),
              ("        tier_put_ended(&sched->tier, copies->copied[i].tier, good);\n", "        (void)good;\n")], [TIER]),
    Mutation("host memory gives up for others what somebody waits for", "daemon/sched/tier.c",
             [("        if (wanted_too || !prefix", "        if (wanted_too || tier->turn > 0 || !prefix")], [WANTS]),
    Mutation("what somebody waits for is passed over for ever in one turn", "daemon/sched/tier.c",
             [("    if (tier->passed == PASSES_MOST)\n", "    if (tier->passed > 10 * PASSES_MOST)\n")], [WANTS]),
    Mutation("the device gives up what somebody waits for", "daemon/sched/sched_cache.c",
             [("        if (!is_kept(sched, cache->heap[0]))\n", "        if (i == 0 || !is_kept(sched, cache->heap[0]))\n")], [WANTS]),
    Mutation("the device keeps for who waits what host memory has", "daemon/sched/sched_cache.c",
             [(" && !tier_has(&sched->tier, key);", ";")], [WANTS]),
    Mutation("one that has begun is waited for", "daemon/sched/sched.c",
             [("    sched_unwant(sched, seq);\n", "")], [WANTS]),
    Mutation("a few blocks that are copied behind many are slow", "daemon/sched/sched_fetch.c",
             [("alone ? copies->submitted_us", "alone || true ? copies->submitted_us")], [TIER]),
    Mutation("one that was sent is waited for", "daemon/request/request_table.c",
             [("    unwant(server, seq);\n    seq_state_set(seq, SEQ_SENT);\n", "    seq_state_set(seq, SEQ_SENT);\n")], [NAMES]),
    Mutation("one that ended before it was sent is waited for", "daemon/request/request_table.c",
             [("    unwant(server, seq);\n    seq_state_set(seq, SEQ_ENDED);\n", "    seq_state_set(seq, SEQ_ENDED);\n")], [NAMES]),
    Mutation("the first who goes takes the others' marks back", "daemon/base/prefix_hint.c",
             [("(look_at(mark) & COUNT) > 1 ? look_at(mark) - 1 : 0", "0")], [NAMES]),
    Mutation("a device that fails while its model falls asleep goes unseen", "daemon/service/sleeper.c",
             [("SLEEPER_STOPPING && !is_ill(of) &&", "SLEEPER_STOPPING && (!is_ill(of) || true) &&")], [SLEEP]),
    Mutation("an engine that was opened for a refused waking stays open", "daemon/service/sleeper.c",
             [("            part->replica->gpu->close(part->engine);\n", "            (void)part->replica;\n")], [SLEEP]),
    Mutation("a model that rests falls asleep under what runs", "daemon/request/model_sleep.c",
             [("    if (model->running == 0 && !is_adapted(", "    if (!is_adapted(")], [SLEEP]),
    Mutation("a model falls asleep under an adapter that is being read", "daemon/request/model_sleep.c",
             [("    return model->number == 0 && served", "    return model->number > 9 && served")], [(SERVER, "sleep")]),
    Mutation("what waits for an adapter of a model that sleeps wakes nobody", "daemon/request/model_sleep.c",
             [("        adapter_tiers_drop(server); /*", "        /*")], [(SERVER, "sleep")]),
    Mutation("an adapter is read into a model that sleeps", "daemon/request/adapter_tiers.c",
             [("awake ? most_wanted(served) : 0", "awake || served->count ? most_wanted(served) : 0")], [(SERVER, "sleep")]),
    Mutation("an adapter is where it was before the model slept", "daemon/request/model_sleep.c",
             [("        served_adapters_closed(&server->adapters);\n", "")], [(SERVER, "sleep"), (HTTP, "adapters")]),
    Mutation("an adapter that was taken away is back behind a sleep", "daemon/adapters/served_adapters.c",
             [("    adapter->given = false;\n", "")], [(HTTP, "adapters")]),
    Mutation("a turn counts no token that is to come", "daemon/request/wait_queue.c",
             [("    expect(seq);\n", "    (void)expect;\n")], [(SERVER, "share")]),
    Mutation("a turn's tokens that did not come stay counted", "daemon/request/wait_queue.c",
             [("    share->credit += turn_cost(&share->turn, seq->expected);\n", "")],
             [("sim/test_sim", "--seeds 1..40")]),
    Mutation("a turn of who comes is behind those that stand there", "daemon/base/turns.c",
             [("    bool fresh = turn->used < start;\n    if (fresh)\n", "    bool fresh = false;\n    if (turn->used < start)\n")],
             [(SERVER, "waiting")]),
    Mutation("a turn of who comes is saved up", "daemon/base/turns.c",
             [("        start = turns->root->key;\n    else if", "        start -= start < below ? start : below;\n    else if")],
             [(SERVER, "waiting")]),
    Mutation("a turn of who owes something never comes", "daemon/base/turns.c",
             [("turns->root->key + below > start", "turns->root->key <= start")], [(SERVER, "waiting")]),
    Mutation("a turn is taken from the first connection alone", "daemon/request/dispatcher.c",
             [("(best && request->waiting->running < best->request->waiting->running)", "best")], [(SERVER, "share")]),
    Mutation("a turn waits for prompts of thirty steps", "daemon/sched/sched_limit.c",
             [("#define STEPS_AHEAD 3u ", "#define STEPS_AHEAD 30u ")], [(REPLICA, "limit")]),
    Mutation("a cancelled self-test is an answer", "daemon/service/self_test.c",
             [("done.finish == FINISH_STOP ||", "done.finish == FINISH_CANCELLED || done.finish == FINISH_STOP ||")],
             [(SERVER, "cancel")]),
    Mutation("a model that falls asleep is sent sequences", "daemon/request/dispatcher.c",
             [("model->sleep.state == MODEL_AWAKE ?", "model->sleep.state <= MODEL_RESTING ?")], [SLEEP]),
    Mutation("nobody makes way for a model that is to wake", "daemon/request/model_sleep.c",
             [("        if (sleep->state == MODEL_ASLEEP && (lacks_memory(sleep) || sleep->beside) &&\n"
               "            wants_waking(model))\n            make_way(server, model, now_us);\n", ""),
              ("    if (error->code == ERR_DEVICE_MEMORY && wants_waking(model))\n"
               "        make_way(server, model, now_us);\n", "    (void)make_way;\n")], [SLEEP]),
    Mutation("nobody makes way for a model that starves", "daemon/request/model_sleep.c",
             [("        if (sleep->starved_us && !sleep->hands_back && server->phase != SERVER_LOADING)\n", "        if (false)\n")],
             [(SERVER, "sleep"), (SERVER, "sleep_sim")]),
    Mutation("who makes way for a model that starves takes its memory back", "daemon/request/model_sleep.c",
             [("!other->sleep.starved_us &&\n", "true &&\n")], [(SERVER, "sleep")]),
    Mutation("of several that starve nobody makes way", "daemon/request/model_sleep.c",
             [("    if (leaver->sleep.starved_us && !(woke_before(model, leaver) && can_leave(server, model)))\n",
               "    (void)woke_before;\n    (void)server;\n    if (leaver->sleep.starved_us)\n")],
             [(SERVER, "sleep"), (SERVER, "sleep_sim")]),
    Mutation("what starves in a model that makes way stays there", "daemon/request/model_sleep.c",
             [("        model->replicas[i]->api->hand_back(model->replicas[i]);\n", "")], [(SERVER, "sleep"), (SERVER, "sleep_sim")]),
    Mutation("who starved beside another is tried before its turn", "daemon/request/model_sleep.c",
             [("    if (!sleep->beside)\n        return false;\n", "    if (server)\n        return false;\n")], [(SERVER, "sleep")]),
    Mutation("weights that were kept are not copied back", "gpu/engine/keep.c",
             [("    int sent = part_send(rank, part, weights, &why);\n",
               "    int sent = 0;\n    (void)why;\n    (void)part_send;\n")], [SLEEP]),
    Mutation("a step does not wait for weights that come", "gpu/program/program.c",
             [("        status = arrival_await(program->arrival, weights_end(program->weights, fused),\n"
               "                               program->stream, error);\n", "        (void)weights_end;\n")], [WAKE]),
    Mutation("a step waits for an op's weight, and not for its bias", "gpu/program/program.c",
             [("{op->weight, op->bias};", "{op->weight, LIST_NONE};")], [WAKE]),
    Mutation("a launch waits for the weights of its first op", "gpu/program/program.c",
             [("    for (uint32_t i = 0; i < fused->how->count; i++) {\n        const struct op *op",
               "    for (uint32_t i = 0; i < 1; i++) {\n        const struct op *op")], [WAKE]),
    Mutation("a graph is captured while weights come", "gpu/engine/cuda_graph.c",
             [("arrival_on(&rank->arrival) || ", "")], [WAKE]),
    Mutation("what a step waited for weights is learned as its cost", "daemon/sched/sched_results.c",
             [("    if (results->waited) {", "    if (false) {")], [(REPLICA, "limit")]),
    Mutation("a step that waits for weights counts as stuck", "daemon/worker/worker.c",
             [("        most = WORKER_WEIGHTS_US;\n", "        most += 0;\n")], [(REPLICA, "worker")]),
    Mutation("a step's own time begins before its weights are there", "daemon/worker/worker_turn.c",
             [("    if (atomic_load_explicit(&worker->busy_since_us, memory_order_relaxed))\n        atomic", "    if (false)\n        atomic")],
             [(REPLICA, "worker")]),
    Mutation("weights that were kept half are taken for whole", "gpu/engine/keep.c",
             [("    if (status)\n        kept_weights_drop(kept);\n    else\n        kept->whole = true;\n",
               "    kept->whole = true;\n")], [SLEEP]),
    Mutation("host memory that was kept is lost", "gpu/memory/kept_weights.c",
             [("    host_pages_return(kept->reserved - stays);\n", "    (void)stays;\n")], [SLEEP]),
    Mutation("host memory is counted by half", "gpu/engine/keep.c",
             [("kept_weights_reserve(engine->kept, bytes, error)",
               "kept_weights_reserve(engine->kept, bytes / 2, error)")], [SLEEP]),
    Mutation("who starts is refused for what others' first steps have", "gpu/memory/pools.c",
             [("             warmups_await(ended));\n", "             !warmups_await(ended));\n")], [MEMORY]),
    Mutation("a pool goes under what was not freed", "gpu/memory/pools.c",
             [("    if (number(used_at)) {\n        if (cuda", "    if (false) {\n        if (cuda")], [STOP]),
    Mutation("memory that was not freed counts as free", "gpu/memory/pools.c",
             [("    CUDA_TRY(cudaFree(base), error);\n", "    (void)error;\n    (void)cudaFree(base);\n")], [STOP]),
    Mutation("an arena goes under a graph that stays", "gpu/engine/cuda_graph.c",
             [("int status = graphs_clear(graphs, error);", "int status = 0 * graphs_clear(graphs, error);")], [STOP]),
    Mutation("a rank stops well, whatever was not freed", "gpu/engine/rank.c",
             [("    return status ? rank_lost(rank, error) : 0;\n}\n\nint rank_start",
               "    return 0;\n}\n\nint rank_start")], [STOP, (GROUP, "group")]),
    Mutation("a follower that does not stop well goes unseen", "daemon/worker/rank_group.c",
             [("            rc = follower->status;\n            *error", "            *error")], [(GROUP, "group")]),
    Mutation("a device that fails while a worker stops goes unseen", "daemon/worker/worker_turn.c",
             [("        tell_lost(worker, worker->lost.code ? &worker->lost : &error);\n", "        (void)error;\n")],
             [(REPLICA, "worker")]),
    Mutation("host memory that the driver keeps is promised to others", "gpu/memory/host_chunks.c",
             [("    if (host_pages_drop(gone->base, gone->bytes, true)) {",
               "    if (host_pages_drop(gone->base, gone->bytes, true) || true) {")], [("gpu/test_gpu", "copies")]),
    Mutation("weights' pages that the driver keeps are promised to others", "gpu/memory/kept_weights.c",
             [("kept->reserved - stays", "kept->reserved - 0 * stays")], [("gpu/test_gpu_model", "keep")]),
]


def mutate(root, mutation):
    """The file as it was, and as it is to be; the second is None where something does not fit."""
    text = (root / mutation.file).read_text()
    changed = text
    for before, after in mutation.changes:
        if text.count(before) != 1:
            print(f"{mutation.file} has no longer one place for '{mutation.what}': {before.strip()}")
            return text, None
        changed = changed.replace(before, after)
    return text, changed


def copy_tree(to):
    """The tracked files. What is there already stays, with its time, so that it is not built again."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        source, target = ROOT / name, to / name
        if not name or not source.is_file() or (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def build(tree, tests):
    targets = sorted({pathlib.Path(program).name for program, _ in tests})
    return subprocess.run(["cmake", "--build", tree / BUILT, "--target", *targets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def fails(tree, program, suite):
    environment = dict(os.environ, CK_RUN_SUITE=suite)
    words = suite.split() if program == "sim/test_sim" else []
    try:
        done = subprocess.run([tree / BUILT / "tests" / program, *words], cwd=tree, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode == 77:
        raise SystemExit(f"{program} has no suite '{suite}'")
    return done.returncode != 0


def is_seen(tree, mutation):
    text, changed = mutate(tree, mutation)
    if changed is None:
        return False
    (tree / mutation.file).write_text(changed)
    try:
        made = build(tree, mutation.tests)
        if made.returncode:
            print(made.stdout[-2000:])
            return False
        unseen = [test for test in mutation.tests if not fails(tree, *test)]
    finally:
        (tree / mutation.file).write_text(text)
    for program, suite in unseen:
        print(f"not seen by {program}, {suite}: {mutation.what}")
    return not unseen


def main(arguments):
    if arguments == ["--match"]:
        return all([mutate(ROOT, mutation)[1] is not None for mutation in MUTATIONS])
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        raise SystemExit(2)
    tree, words = pathlib.Path(arguments[0]).resolve() / "mutated", arguments[1:]
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation.what for word in words)]
    copy_tree(tree)
    subprocess.run(["cmake", "--preset", "dev", "-G", "Ninja"], cwd=tree, stdout=subprocess.DEVNULL, check=True)
    tests = sorted({test for mutation in chosen for test in mutation.tests})
    made = build(tree, tests)
    if made.returncode:
        raise SystemExit(made.stdout[-2000:])
    wrong = [test for test in tests if fails(tree, *test)]
    if wrong:
        raise SystemExit(f"fails with nothing changed: {wrong}")
    seen = 0
    for mutation in chosen:
        good = is_seen(tree, mutation)
        seen += good
        print(f"{'seen' if good else 'NOT SEEN'}: {mutation.what}", flush=True)
    print(f"{seen} of {len(chosen)} seen")
    return seen == len(chosen)


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
