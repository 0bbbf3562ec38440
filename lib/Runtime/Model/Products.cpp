//===- Products.cpp - asynchronous products of the model ------------------===//

#include "Functions.h"
#include "Product.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>

using namespace mlir::flashattn;
using namespace mlir::flashattn::model;

constexpr int kRows = 64, kStep = 16, kStepBytes = 32, kChunkBytes = 16;

uint32_t SharedOperand::getOffset(uint32_t row, uint32_t k) const {
  // "Matrix descriptor" of the PTX ISA; distances are in units of 16 bytes.
  uint32_t leading = (fields >> 16 & 0x3fff) * kChunkBytes;
  uint32_t stride = (fields >> 32 & 0x3fff) * kChunkBytes;
  uint32_t rowBytes = 256 >> (fields >> 62);
  uint32_t steps = transposed ? kStep : kStepBytes / getElementBytes();
  uint32_t step = k / steps, inner = k % steps;
  uint32_t offset = stepsPerPanel
                        ? step / stepsPerPanel * panelBytes + step % stepsPerPanel * stepBytes
                        : step * stepBytes;
  if (!transposed)
    return offset + row / 8 * stride + row % 8 * rowBytes + inner * getElementBytes();
  uint32_t perPanel = rowBytes / 2;
  return offset + row / perPanel * leading + inner / 8 * stride + inner % 8 * rowBytes +
         row % perPanel * 2;
}

uint32_t SharedOperand::swizzle(uint32_t address) const {
  uint32_t mask = (256 >> (fields >> 62)) / kChunkBytes - 1;
  return address ^ ((address >> 7 & mask) << 4);
}

namespace {

/// A result that is not available yet is a NaN with the number of its product.
constexpr uint32_t kTicket = 0xffe00000, kTicketMask = 0x1fffff;

uint32_t getBits(const float *value) {
  uint32_t bits;
  std::memcpy(&bits, value, sizeof(bits));
  return bits;
}
bool isTicket(const float *value) { return (getBits(value) & ~kTicketMask) == kTicket; }

/// Row and column of element `i` of a thread's fragment in a warpgroup.
struct Element {
  Element(unsigned thread, int i)
      : row(thread / kWarpThreads * 16 + thread % kWarpThreads / 4 + i / 2 % 2 * 8),
        column(i / 4 * 8 + thread % 4 * 2 + i % 2) {}
  int row, column;
};

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

class OperandReader {
public:
  OperandReader(Block &block, const Product &product)
      : block(block), product(product), chunks(block.launch->sharedBytes / kChunkBytes + 1) {}

  /// Reads `rows` x depth of an operand in shared memory, and writes (row, k) to row * rowStride +
  /// k * kStride. Skips the columns before `from` of an operand that is not transposed.
  bool read(const SharedOperand &operand, int rows, float *to, int rowStride, int kStride,
            int from = 0) {
    uint32_t base = operand.base - block.shared;
    const int perChunk = kChunkBytes / operand.getElementBytes();
    for (int outer = 0; outer < (operand.transposed ? product.depth : rows); ++outer)
      for (int inner = from; inner < (operand.transposed ? rows : product.depth);
           inner += perChunk) {
        int row = operand.transposed ? inner : outer, k = operand.transposed ? outer : inner;
        uint32_t offset = operand.swizzle(base + operand.getOffset(row, k));
        if (offset + kChunkBytes > block.launch->sharedBytes) {
          fail(llvm::formatv("access out of bounds: expected operands within the block's {0} bytes "
                             "of shared memory but got offset {1}",
                             block.launch->sharedBytes, offset));
          return false;
        }
        chunks.set(offset / kChunkBytes);
        float wide[kChunkBytes];
        widen(wide, block.shared + offset, perChunk, operand.element);
        int stride = operand.transposed ? rowStride : kStride;
        for (int i = 0; i < perChunk; ++i)
          to[row * rowStride + k * kStride + i * stride] = wide[i];
      }
    return true;
  }

  /// Whether all bytes that were read may be read.
  bool check() {
    unsigned agent = block.agents.products(product.first->group());
    Viewer viewer{agent,          product.number, product.place, /*isAsync=*/true,
                  &product.known, UINT32_MAX};
    for (int begin = chunks.find_first(); begin >= 0;) {
      int end = chunks.find_next_unset(begin);
      if (auto found =
              block.shadow.read(begin * kChunkBytes, (end - begin) * kChunkBytes, viewer)) {
        fail(block.describe(*found, /*writes=*/false));
        return false;
      }
      begin = chunks.find_next(end);
    }
    return true;
  }

private:
  void fail(const llvm::Twine &what) {
    block.failAsync(what + " by " +
                    block.describe(block.agents.products(product.first->group()), product.place) +
                    " of " + block.describe(*product.first));
  }

  Block &block;
  const Product &product;
  llvm::BitVector chunks;
};

void perform(Block &block, Product &product) {
  OperandReader reader(block, product);
  int columns = product.columns, depth = product.depth, held = columns / 2;
  std::vector<float> a(kRows * depth), b(depth * columns), d(kRows * columns);
  if (product.a.fields && !reader.read(product.a, kRows, a.data(), depth, 1, product.held))
    return;
  int mine = product.held / 2;
  bool areF8 = isF8(product.a.element);
  std::vector<float> wide(mine);
  for (unsigned thread = 0; mine && thread < kGroupThreads; ++thread) {
    widen(wide.data(), &product.registers[thread * mine * product.a.getElementBytes()], mine,
          product.a.element);
    for (int i = 0; i < mine; ++i) {
      Element element(thread, i);
      // f8 in registers are multiplied in accumulator order; see hopper.wgmma.
      int column = areF8 ? element.column / 16 * 16 + thread % 4 * 4 + i / 4 % 2 * 2 + i % 2
                         : element.column;
      a[element.row * depth + column] = wide[i];
    }
  }
  if (!reader.read(product.b, columns, b.data(), 1, columns) || !reader.check())
    return;
  auto &group = block.products[product.first->group()];
  for (unsigned thread = 0; thread < kGroupThreads; ++thread) {
    float *values = &product.values[thread * held];
    if (int64_t from = product.accumulatorOf[thread]; from >= 0)
      for (const std::unique_ptr<Product> &other : group)
        if (other->number == from)
          std::copy_n(&other->values[thread * held], held, values);
    for (int i = 0; i < held; ++i) {
      Element element(thread, i);
      d[element.row * columns + element.column] = values[i];
    }
  }
  (areF8 ? multiplyF8 : multiply)(d.data(), a.data(), b.data(), kRows, columns, depth);
  for (unsigned thread = 0; thread < kGroupThreads; ++thread)
    for (int i = 0; i < held; ++i) {
      Element element(thread, i);
      product.values[thread * held + i] = d[element.row * columns + element.column];
    }
  product.isDone = true;
  product.begins = std::max(product.begins, block.productsUntil);
  block.productsUntil = product.ends =
      product.begins + int64_t(kRows) * columns * depth / (Costs::kProductsPerCycle * (areF8 ? 2 : 1));
  if (const int32_t *at = product.first->view.block; block.statistics && !at[0] && !at[1] && !at[2])
    block.statistics->addSpan(
        {Span::kProducts, product.place, /*waits=*/false, product.begins, product.ends});
  for (unsigned i = 0; i < kGroupThreads; ++i) {
    Thread &thread = block.threads[product.first->group() * kGroupThreads + i];
    if (thread.waits == WaitKind::Products)
      block.wake(thread);
  }
}

//===----------------------------------------------------------------------===//
// Functions that threads call
//===----------------------------------------------------------------------===//

Product *findProduct(Block &block, unsigned group, uint32_t number) {
  for (std::unique_ptr<Product> &product : block.products[group])
    if (product->number == number)
      return product.get();
  return nullptr;
}

/// Returns the thread's next product, which the first thread of its warpgroup creates.
Product &joinProduct(Thread &thread, int32_t columns, int32_t depth) {
  Block &block = *thread.block;
  if (block.agents.threads % kGroupThreads != 0)
    block.fail(thread,
               llvm::formatv("expected blocks of whole warpgroups for hopper.wgmma but got {0} "
                             "threads",
                             block.agents.threads));
  auto &group = block.products[thread.group()];
  uint32_t number = ++thread.products;
  if (Product *found = findProduct(block, thread.group(), number))
    return *found;
  // Results that are no longer requested.
  constexpr size_t kKept = 16;
  while (group.size() > kKept && group.front()->isDone)
    group.pop_front();
  group.push_back(std::make_unique<Product>());
  Product &product = *group.back();
  product.number = number;
  product.place = thread.place;
  product.columns = columns;
  product.depth = depth;
  product.first = &thread;
  product.known = thread.known;
  product.values.resize(kGroupThreads * columns / 2);
  product.accumulatorOf.assign(kGroupThreads, -1);
  return product;
}

void product(Thread *thread, int32_t place, int32_t columns, int32_t depth, int32_t held,
             const SharedOperand *operands, const void *a, const void *registers, const void *b,
             const float *accumulator, float *result) {
  thread->enter(place);
  Block &block = *thread->block;
  Product &product = joinProduct(*thread, columns, depth);
  SharedOperand both[] = {operands[0], operands[1]};
  both[0].base = both[0].fields ? static_cast<const char *>(a) : nullptr;
  both[1].base = static_cast<const char *>(b);
  if (product.arrived == 0) {
    product.a = both[0];
    product.b = both[1];
    product.held = held;
    product.registers.resize(kGroupThreads * held / 2 * product.a.getElementBytes());
  } else if (product.place != thread->place || product.a.base != both[0].base ||
             product.b.base != both[1].base) {
    block.fail(*thread, "expected all threads of a warpgroup to begin the same product but got "
                        "others at " +
                            block.getPlace(product.place));
  }
  for (const SharedOperand &operand : both)
    if (operand.fields)
      block.getShared(*thread, operand.base, kChunkBytes, kChunkBytes);
  unsigned index = thread->index % kGroupThreads;
  product.known.merge(thread->known);
  product.begins = std::max(product.begins, thread->time);
  product.begun.join(thread->known.passed);
  product.begun.set(thread->index, thread->now++, block.agents.count());
  if (size_t bytes = held / 2 * product.a.getElementBytes())
    std::memcpy(&product.registers[index * bytes], registers, bytes);
  int sums = columns / 2;
  if (accumulator) {
    if (isTicket(accumulator))
      product.accumulatorOf[index] = getBits(accumulator) & kTicketMask;
    else
      std::copy_n(accumulator, sums, &product.values[index * sums]);
  }
  uint32_t ticket = kTicket | (product.number & kTicketMask);
  for (int i = 0; i < sums; ++i)
    std::memcpy(result + i, &ticket, sizeof(ticket));
  if (++product.arrived == kGroupThreads)
    block.queue.add(block.agents.products(thread->group()),
                    [&block, &product] { perform(block, product); });
}

void productWait(Thread *thread, int32_t place, int32_t pending) {
  thread->enter(place);
  Block &block = *thread->block;
  if (thread->products <= uint32_t(pending))
    return;
  uint32_t last = thread->products - pending;
  while (true) {
    Product *product = findProduct(block, thread->group(), last);
    if (!product || product->isDone)
      break;
    block.block(*thread, WaitKind::Products, thread->group(), last);
  }
  block.joins.set(thread->known.seen, block.agents.products(thread->group()), last,
                  block.agents.count());
  if (Product *product = findProduct(block, thread->group(), last)) {
    block.joins.join(thread->known.passed, product->begun);
    thread->waitUntil(product->ends);
  }
  thread->productsDone = last;
}

/// Replaces the ticket by the results of a product that was waited for.
void productTake(Thread *thread, int32_t place, float *values, int64_t count) {
  thread->enter(place);
  if (!isTicket(values))
    return;
  uint32_t number = getBits(values) & kTicketMask;
  if (number > thread->productsDone)
    return;
  Product *product = findProduct(*thread->block, thread->group(), number);
  if (!product || product->columns / 2 != count)
    return thread->block->fail(*thread, "expected the result of a product to be read right after "
                                        "its wait but got the result of product " +
                                            llvm::Twine(number));
  std::copy_n(&product->values[thread->index % kGroupThreads * count], count, values);
}

/// Checks the use of a value that may belong to a product in flight.
void productUse(Thread *thread, int32_t place, const float *values) {
  thread->enter(place);
  if (!isTicket(values))
    return;
  Block &block = *thread->block;
  uint32_t number = getBits(values) & kTicketMask;
  Product *product = findProduct(block, thread->group(), number);
  block.fail(*thread, "missing wait for a product: expected hopper.wgmma_wait before the use of "
                      "its result but got the use of the product at " +
                          (product ? block.getPlace(product->place) : "an earlier op"));
}

} // namespace

llvm::ArrayRef<Function> mlir::flashattn::model::getProductFunctions() {
  static const Function functions[] = {
      makeFunction("Product", product),
      makeFunction("ProductWait", productWait),
      makeFunction("ProductTake", productTake),
      makeFunction("ProductUse", productUse),
  };
  return functions;
}
