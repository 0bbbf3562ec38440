//===- Report.cpp - reports of errors in a block --------------------------===//

#include "Block.h"
#include "Product.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

std::string Block::describe(const Thread &thread) const {
  const int32_t *at = thread.view.block;
  return llvm::formatv("thread {0} (warpgroup {1}, warp {2}) of block ({3}, {4}, {5})",
                       thread.index, thread.group(), thread.warp(), at[0], at[1], at[2]);
}

std::string Block::describe(unsigned agent, unsigned place) const {
  std::string who;
  if (agents.isThread(agent))
    who = llvm::formatv("thread {0} (warpgroup {1}, warp {2})", agent, agent / kGroupThreads,
                        agent / kWarpThreads);
  else if (agents.isProducts(agent))
    who = llvm::formatv("a product of warpgroup {0}", agent - agents.threads);
  else if (agents.isStores(agent))
    who = llvm::formatv("a copy from shared memory of warp {0}", agent - agents.stores(0));
  else
    who = llvm::formatv("a copy to shared memory that completes on barrier {0}",
                        agent - agents.loads(0));
  return who + " at " + getPlace(place).str();
}

std::string Block::describe(const Conflict &conflict, bool writes) const {
  const char *now = writes ? "written" : "read";
  if (conflict.kind == Conflict::Unwritten)
    return llvm::formatv("use before any write: expected shared memory that has been written but "
                         "got offset {0}, {1}",
                         conflict.offset, now);
  auto getExpected = [&] {
    switch (conflict.kind) {
    case Conflict::Unfenced:
      return "missing fence: expected a fence of the asynchronous proxy between what a thread "
             "wrote "
             "and a copy or product";
    case Conflict::CopyPending:
      return "missing wait for cp.async: expected a copy that was waited for";
    default:
      return "race: expected shared memory that nothing else touches at the same time";
    }
  };
  return llvm::formatv("{0} but got offset {1}, {2} by {3}, and {4}", getExpected(),
                       conflict.offset, conflict.otherWrites ? "written" : "read",
                       describe(conflict.otherAgent, conflict.otherPlace), now);
}

void Block::fail(const Thread &thread, const llvm::Twine &message) {
  if (!report)
    report = (message + " by " + describe(thread) + " at " + getPlace(thread.place)).str();
  // No thread of the block continues.
  if (running)
    running->fiber->suspend();
}

void Block::failAsync(const llvm::Twine &message) {
  if (!report)
    report = message.str();
  if (running)
    running->fiber->suspend();
}

std::string Block::describeWait(const Thread &thread) const {
  switch (thread.waits) {
  case WaitKind::Barrier: {
    const Barrier &barrier = *barriers[thread.object];
    return llvm::formatv("waits for parity {0} of barrier {1}, whose phase {2} lacks {3} of {4} "
                         "arrivals and {5} bytes",
                         thread.value, barrier.number, barrier.phase, barrier.missing,
                         barrier.count, barrier.bytes);
  }
  case WaitKind::Group: {
    const GroupBarrier &group = groups[thread.object];
    return llvm::formatv("waits at barrier {0} of the block, to which {1} of {2} threads have come",
                         thread.object, group.arrived, group.expected);
  }
  case WaitKind::Warp:
    return "waits for the other threads of its warp";
  case WaitKind::Products:
    return llvm::formatv("waits for product {0} of its warpgroup, which not all threads have begun",
                         thread.value);
  case WaitKind::Stores:
    return "waits for its copies from shared memory";
  case WaitKind::State: {
    auto found = llvm::find_if(awaiting, [&](const Awaiting &a) { return a.thread == &thread; });
    return llvm::formatv("waits until a state in global memory changes from {1} to {0}",
                         found->value, found->state->load());
  }
  case WaitKind::None:
    break;
  }
  return "runs";
}

/// Threads that wait for the same event at the same place share a line.
std::string Block::describeDeadlock() const {
  const int32_t *at = threads.front().view.block;
  std::string text = llvm::formatv(
      "deadlock: expected a runnable thread in block ({0}, {1}, {2}) but got", at[0], at[1], at[2]);
  unsigned done = 0;
  for (unsigned begin = 0, end; begin < threads.size(); begin = end) {
    const Thread &first = threads[begin];
    for (end = begin + 1; end < threads.size(); ++end) {
      const Thread &next = threads[end];
      if (next.state != first.state || next.waits != first.waits || next.place != first.place ||
          next.object != first.object || next.value != first.value)
        break;
    }
    if (first.state == Thread::Done) {
      done += end - begin;
      continue;
    }
    text += llvm::formatv("\n  threads {0} to {1} (warpgroup {2}): {3}, at {4}", begin, end - 1,
                          first.group(), describeWait(first), getPlace(first.place));
  }
  if (done)
    text += llvm::formatv("\n  {0} threads have ended", done);
  return text;
}

void Block::checkEnd() {
  for (const std::unique_ptr<Barrier> &barrier : barriers)
    if (barrier->bytes != 0) {
      report =
          llvm::formatv("byte count mismatch: expected all bytes that barrier {0} expects but got "
                        "{2} fewer in phase {1} at the end of block ({3}, {4}, {5})",
                        barrier->number, barrier->phase, barrier->bytes, threads[0].view.block[0],
                        threads[0].view.block[1], threads[0].view.block[2])
              .str();
      return;
    }
}
