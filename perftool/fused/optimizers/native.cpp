// Steps over lists of float32 tensors on a CPU, without the cost of an operator per tensor.
//
// Nothing is kept between calls: every pointer is read anew from the tensors that Python passes. For lists that hold
// anything but dense float32 memory of equal sizes every function gives None before anything is written.
// Every loop exists for AVX512, AVX2 and the base instruction set, and the processor that runs it chooses, so that
// a built file may move between machines. Sums of squares are in double precision.

#include <torch/csrc/autograd/python_variable.h>

#include <ATen/Parallel.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <cmath>
#include <vector>

#if defined(__x86_64__) && defined(__linux__)
#define EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVERY_PROCESSOR
#endif

namespace {

constexpr int64_t PIECE = 16 * 1024;  // Elements whose operands stay in the cache of a core.
constexpr int64_t SHARE = 64 * 1024;  // Elements below which another thread costs more than it saves.

struct Piece {
  size_t row;
  int64_t start, count;
};

// Corresponding memory of several lists: `at[list][row]` points to `sizes[row]` elements.
struct Rows {
  std::vector<std::vector<float*>> at;
  std::vector<int64_t> sizes;
  std::vector<Piece> pieces;
  int64_t elements = 0;

  float* of(int list, const Piece& piece) const { return at[list][piece.row] + piece.start; }

  // Runs `body(piece, index)` for all pieces, on all threads where that pays.
  template <class Body>
  void each(const Body& body) const {
    const int64_t count = pieces.size();
    const int64_t grain = elements ? std::max<int64_t>(1, count * SHARE / elements) : 1;
    at::parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) body(pieces[i], i);
    });
  }

  // What `square` gives for the pieces, added up per row in a fixed order.
  template <class Square>
  std::vector<double> sums(const Square& square) const {
    std::vector<double> parts(pieces.size()), rows(sizes.size(), 0.0);
    each([&](const Piece& piece, int64_t i) { parts[i] = square(piece); });
    for (size_t i = 0; i < pieces.size(); ++i) rows[pieces[i].row] += parts[i];
    return rows;
  }
};

bool is_plain(PyObject* object) {
  if (!THPVariable_CheckExact(object)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
      tensor.scalar_type() == at::kFloat && tensor.is_non_overlapping_and_dense() && !tensor.is_neg();
}

bool read(PyObject* const* lists, int count, Rows& rows) {
  for (int list = 0; list < count; ++list) {
    if (!PyList_Check(lists[list])) return false;
    const Py_ssize_t length = PyList_GET_SIZE(lists[list]);
    if (list && static_cast<size_t>(length) != rows.sizes.size()) return false;
    rows.at.emplace_back(length);
    for (Py_ssize_t i = 0; i < length; ++i) {
      if (!is_plain(PyList_GET_ITEM(lists[list], i))) return false;
      const at::Tensor& tensor = THPVariable_Unpack(PyList_GET_ITEM(lists[list], i));
      if (!list) rows.sizes.push_back(tensor.numel());
      if (tensor.numel() != rows.sizes[i]) return false;
      rows.at[list][i] = static_cast<float*>(tensor.unsafeGetTensorImpl()->mutable_data());
    }
  }
  for (size_t row = 0; row < rows.sizes.size(); ++row) {
    rows.elements += rows.sizes[row];
    for (int64_t start = 0; start < rows.sizes[row]; start += PIECE)
      rows.pieces.push_back({row, start, std::min(PIECE, rows.sizes[row] - start)});
  }
  return true;
}

// A function of Python: reads LISTS lists, then NUMBERS numbers, and runs `body` on them without Python's lock.
template <int LISTS, int NUMBERS, double (*body)(const Rows&, const double*)>
PyObject* entry(PyObject*, PyObject* const* given, Py_ssize_t count) {
  double numbers[NUMBERS + 1] = {}, result = 0.0;
  if (count != LISTS + NUMBERS) return PyErr_Format(PyExc_TypeError, "expects %d arguments", LISTS + NUMBERS);
  for (int i = 0; i < NUMBERS; ++i) numbers[i] = PyFloat_AsDouble(given[LISTS + i]);
  if (PyErr_Occurred()) return nullptr;
  Rows rows;
  if (!read(given, LISTS, rows)) return Py_NewRef(Py_None);
  Py_BEGIN_ALLOW_THREADS;
  result = body(rows, numbers);
  Py_END_ALLOW_THREADS;
  return PyFloat_FromDouble(result);
}

EVERY_PROCESSOR void sgd_piece(float* p, const float* g, float* b, int64_t n, float lr, float momentum, float decay,
                               float kept, bool nesterov, float by) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = decay != 0 ? g[i] * by + decay * p[i] : g[i] * by;
    b[i] = momentum * b[i] + kept * grad;
    p[i] -= lr * (nesterov ? grad + momentum * b[i] : b[i]);
  }
}

EVERY_PROCESSOR void descend_piece(float* p, const float* g, int64_t n, float lr, float decay, float by) {
  for (int64_t i = 0; i < n; ++i) p[i] -= lr * (decay != 0 ? g[i] * by + decay * p[i] : g[i] * by);
}

EVERY_PROCESSOR void adagrad_piece(float* p, const float* g, float* s, int64_t n, float rate, float decay, float eps,
                                   float by) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = decay != 0 ? g[i] * by + decay * p[i] : g[i] * by;
    s[i] += grad * grad;
    p[i] -= rate * grad / (std::sqrt(s[i]) + eps);
  }
}

EVERY_PROCESSOR void adamw_piece(float* p, const float* g, float* m, float* v, int64_t n, float size, float beta1,
                                 float beta2, float one1, float one2, float eps, float shrink, float by) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = g[i] * by;
    m[i] = beta1 * m[i] + one1 * grad;
    v[i] = beta2 * v[i] + one2 * grad * grad;
    p[i] = p[i] * shrink - size * m[i] / (std::sqrt(v[i]) + eps);
  }
}

struct Lamb {
  float beta1, beta2, one1, one2, by1, by2, eps, decay;
  float direction(float p, float m, float v) const { return m * by1 / (std::sqrt(v) * by2 + eps) + decay * p; }
};

// The moments, and the sums of squares of the parameters and of their updates.
EVERY_PROCESSOR void lamb_piece(const float* p, const float* g, float* m, float* v, int64_t n, const Lamb& c,
                                double* sums) {
  double weights = 0.0, updates = 0.0;
#pragma omp simd reduction(+ : weights, updates)
  for (int64_t i = 0; i < n; ++i) {
    m[i] = c.beta1 * m[i] + c.one1 * g[i];
    v[i] = c.beta2 * v[i] + c.one2 * g[i] * g[i];
    const float u = c.direction(p[i], m[i], v[i]);
    weights += static_cast<double>(p[i]) * p[i];
    updates += static_cast<double>(u) * u;
  }
  sums[0] = weights, sums[1] = updates;
}

EVERY_PROCESSOR void lamb_apply(float* p, const float* m, const float* v, int64_t n, const Lamb& c, float rate) {
  for (int64_t i = 0; i < n; ++i) p[i] -= rate * c.direction(p[i], m[i], v[i]);
}

EVERY_PROCESSOR double square_piece(const float* x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

EVERY_PROCESSOR void scale_piece(float* x, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) x[i] *= by;
}

EVERY_PROCESSOR void lars_piece(float* g, const float* p, int64_t n, float decay, float by) {
  for (int64_t i = 0; i < n; ++i) g[i] = (decay != 0 ? g[i] + decay * p[i] : g[i]) * by;
}

EVERY_PROCESSOR void lerp_piece(float* x, const float* to, int64_t n, float weight) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = weight < 0.5f ? x[i] + weight * (to[i] - x[i]) : to[i] - (to[i] - x[i]) * (1.0f - weight);
}

// params, grads, buffers; lr, momentum, decay, 1 - dampening, nesterov, factor of the gradients
double sgd(const Rows& rows, const double* c) {
  rows.each([&](const Piece& at, int64_t) {
    sgd_piece(rows.of(0, at), rows.of(1, at), rows.of(2, at), at.count, c[0], c[1], c[2], c[3], c[4] != 0, c[5]);
  });
  return 0.0;
}

// params, grads; lr, decay, factor of the gradients
double descend(const Rows& rows, const double* c) {
  rows.each([&](const Piece& at, int64_t) {
    descend_piece(rows.of(0, at), rows.of(1, at), at.count, c[0], c[1], c[2]);
  });
  return 0.0;
}

// params, grads, sums; rate, decay, eps, factor of the gradients
double adagrad(const Rows& rows, const double* c) {
  rows.each([&](const Piece& at, int64_t) {
    adagrad_piece(rows.of(0, at), rows.of(1, at), rows.of(2, at), at.count, c[0], c[1], c[2], c[3]);
  });
  return 0.0;
}

// params, grads, both moments; step size, both betas, eps, 1 - lr * decay, factor of the gradients
double adamw(const Rows& rows, const double* c) {
  rows.each([&](const Piece& at, int64_t) {
    adamw_piece(rows.of(0, at), rows.of(1, at), rows.of(2, at), rows.of(3, at), at.count, c[0], c[1], c[2], 1 - c[1],
                1 - c[2], c[3], c[4], c[5]);
  });
  return 0.0;
}

// params, grads, both moments; lr, both betas, weight of the gradient, both corrections, eps, decay, whether to adapt,
// factor of the gradients, which are multiplied in place. Gives the number of parameters that are all zero.
double lamb(const Rows& rows, const double* c) {
  const Lamb form{float(c[1]), float(c[2]), float(c[3]), float(1 - c[2]), float(1 / c[4]),
                  float(1 / std::sqrt(c[5])), float(c[6]), float(c[7])};
  std::vector<double> parts(2 * rows.pieces.size()), sums(2 * rows.sizes.size(), 0.0);
  rows.each([&](const Piece& at, int64_t i) {
    if (c[9] != 1) scale_piece(rows.of(1, at), at.count, c[9]);
    lamb_piece(rows.of(0, at), rows.of(1, at), rows.of(2, at), rows.of(3, at), at.count, form, &parts[2 * i]);
  });
  for (size_t i = 0; i < parts.size(); ++i) sums[2 * rows.pieces[i / 2].row + i % 2] += parts[i];
  rows.each([&](const Piece& at, int64_t) {
    const double weights = std::sqrt(sums[2 * at.row]), updates = std::sqrt(sums[2 * at.row + 1]);
    const double ratio = c[8] != 0 && updates > 0 ? weights / updates : 1.0;
    lamb_apply(rows.of(0, at), rows.of(2, at), rows.of(3, at), at.count, form, c[0] * ratio);
  });
  double zeros = 0.0;
  for (size_t row = 0; row < rows.sizes.size(); ++row) zeros += rows.sizes[row] && sums[2 * row] == 0.0;
  return zeros;
}

// params, grads; lr, decay, eeta, eps
double lars(const Rows& rows, const double* c) {
  const auto weights = rows.sums([&](const Piece& at) { return square_piece(rows.of(0, at), at.count); });
  const auto grads = rows.sums([&](const Piece& at) { return square_piece(rows.of(1, at), at.count); });
  rows.each([&](const Piece& at, int64_t) {
    const double w = std::sqrt(weights[at.row]), g = std::sqrt(grads[at.row]);
    const double ratio = w > 0 && g > 0 ? c[2] * w / (g + c[1] * w + c[3]) : 1.0;
    lars_piece(rows.of(1, at), rows.of(0, at), at.count, c[1], ratio * c[0]);
  });
  return 0.0;
}

// tensors; factor
double scale(const Rows& rows, const double* c) {
  rows.each([&](const Piece& at, int64_t) { scale_piece(rows.of(0, at), at.count, c[0]); });
  return 0.0;
}

// averages, values; weight of the values
double lerp(const Rows& rows, const double* c) {
  rows.each([&](const Piece& at, int64_t) { lerp_piece(rows.of(0, at), rows.of(1, at), at.count, c[0]); });
  return 0.0;
}

// tensors; gives the 2-norm of all together
double norm(const Rows& rows, const double*) {
  double sum = 0.0;
  for (double each : rows.sums([&](const Piece& at) { return square_piece(rows.of(0, at), at.count); })) sum += each;
  return std::sqrt(sum);
}

bool is_place(PyObject* object, int64_t size) {
  return is_plain(object) && THPVariable_Unpack(object).is_contiguous() && THPVariable_Unpack(object).numel() == size;
}

// params, sizes, entries, names, columns: the list of the gradients, or None unless all parameters have their size and
// a gradient of it, all are contiguous, and entries[i][names[c]] is the object columns[c][i]. All but names are lists.
PyObject* gradients(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 5) return PyErr_Format(PyExc_TypeError, "expects 5 arguments");
  const Py_ssize_t length = PyList_GET_SIZE(given[0]), width = PyTuple_GET_SIZE(given[3]);
  PyObject* found = PyList_New(length);
  for (Py_ssize_t i = 0; found && i < length; ++i) {
    PyObject* param = PyList_GET_ITEM(given[0], i);
    const int64_t size = PyLong_AsLongLong(PyList_GET_ITEM(given[1], i));
    bool fits = is_place(param, size) && THPVariable_Unpack(param).grad().defined();
    for (Py_ssize_t c = 0; fits && c < width; ++c) {
      PyObject* state = PyDict_GetItem(PyList_GET_ITEM(given[2], i), PyTuple_GET_ITEM(given[3], c));
      fits = state == PyList_GET_ITEM(PyList_GET_ITEM(given[4], c), i);
    }
    PyObject* grad = fits ? THPVariable_Wrap(THPVariable_Unpack(param).grad()) : nullptr;
    if (grad) PyList_SET_ITEM(found, i, grad);
    if (!grad || !is_place(grad, size)) Py_CLEAR(found);
  }
  PyErr_Clear();
  return found ? found : Py_NewRef(Py_None);
}

// Whether a mode records or replaces the operators of PyTorch, which would not see these.
PyObject* is_watched(PyObject*, PyObject*) { return PyBool_FromLong(c10::impl::dispatch_mode_enabled()); }

PyMethodDef method(const char* name, PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {
    method("sgd", entry<3, 6, sgd>),     method("descend", entry<2, 3, descend>),
    method("adagrad", entry<3, 4, adagrad>), method("adamw", entry<4, 6, adamw>),
    method("lamb", entry<4, 10, lamb>),  method("lars", entry<2, 4, lars>),
    method("scale", entry<1, 1, scale>), method("lerp", entry<2, 1, lerp>),
    method("norm", entry<1, 0, norm>),   method("gradients", gradients),
    {"is_watched", is_watched, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "native", nullptr, -1, methods};

}  // namespace

#define INIT_OF(name) PyInit_##name
#define INIT(name) INIT_OF(name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
