#!/usr/bin/env python3
"""Proves on small trees that each check of tools/ accepts what keeps the rules and names what breaks them."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"

LAYERS = """\
base:
config text: base
kernels: base
serve: base
align: all but serve
apps tests: all
"""


class CheckTest(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="loam-checks-"))
        self.addCleanup(shutil.rmtree, self.root)
        self.put("LAYERS", LAYERS)
        self.put("loam/base/a.h", "#include <vector>\n")
        self.put("loam/serve/s.h", '#include "loam/base/a.h"\n')

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_check(self, tool):
        command = [sys.executable] if tool.endswith(".py") else []
        done = subprocess.run([*command, TOOLS / tool, self.root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def accepts(self, tool):
        status, output = self.run_check(tool)
        self.assertEqual(status, 0, output)

    def refuses(self, tool, *parts):
        status, output = self.run_check(tool)
        self.assertEqual(status, 1, output)
        for part in parts:
            self.assertIn(part, output)


class Layers(CheckTest):
    def test_accepts_what_the_rules_allow(self):
        self.put("loam/text/t.cpp", '#include <hwy/highway.h>\n#include "loam/base/a.h"\n#include "loam/text/t-inl.h"\n')
        self.put("loam/text/t-inl.h", "#include <hwy/highway.h>\n")
        self.put("loam/kernels/cpu/k.cpp", '#include "hwy/foreach_target.h"\n')
        self.put("loam/base/json.cpp", "#include <nlohmann/json.hpp>\n")
        self.put("loam/align/x.cpp", '#include "loam/text/t.h"\n')
        self.put("loam/text/t.h", "// #include <spdlog/spdlog.h>\n/* #include \"loam/serve/s.h\" */\n")
        self.put("apps/main.cpp", '#include <CLI/CLI.hpp>\n#include "apps/version.h"\n#include "loam/serve/s.h"\n')
        self.put("apps/CMakeLists.txt", "set(header ${PROJECT_BINARY_DIR}/generated/apps/version.h)\n")
        self.put("tests/base/a_test.cpp", '#include <nlohmann/json.hpp>\n#include "loam/base/a.h"\n')
        self.accepts("check_layers.py")

    def test_upward_include(self):
        self.put("loam/base/b.cpp", '#include "loam/serve/s.h"\n')
        self.refuses("check_layers.py", "loam/base/b.cpp", "'base' must not include 'serve'")

    def test_upward_include_in_angle_brackets(self):
        self.put("loam/base/b.h", "#  include <loam/serve/s.h>\n")
        self.refuses("check_layers.py", "'base' must not include 'serve'")

    def test_all_but(self):
        self.put("loam/align/x.h", '#include "loam/serve/s.h"\n')
        self.refuses("check_layers.py", "'align' must not include 'serve'")

    def test_sideways_include(self):
        self.put("loam/text/t.h", "")
        self.put("loam/config/c.h", '#include "loam/text/t.h"\n')
        self.refuses("check_layers.py", "'config' must not include 'text'")

    def test_include_not_rooted_at_the_top(self):
        self.put("loam/base/b.h", '#include "a.h"\n')
        self.refuses("check_layers.py", "loam/base/b.h", "start at the top")

    def test_library_code_must_not_include_apps_or_tests(self):
        self.put("tests/harness/h.h", "")
        self.put("loam/base/b.cpp", '#include "tests/harness/h.h"\n')
        self.refuses("check_layers.py", "'base' must not include 'tests'")

    def test_heavy_header_in_a_public_header(self):
        for include in ["CLI/CLI.hpp", "nlohmann/json.hpp", "spdlog/spdlog.h", "boost/asio.hpp", "simdjson.h", "oneapi/dnnl/dnnl.hpp",
                        "dnnl.hpp", "hwy/highway.h"]:
            self.put("loam/text/t.h", f"#include <{include}>\n")
            self.refuses("check_layers.py", "loam/text/t.h", ".cpp files only")

    def test_heavy_header_in_cuda(self):
        self.put("loam/kernels/cuda/k.cu", "#include <spdlog/spdlog.h>\n")
        self.refuses("check_layers.py", "loam/kernels/cuda/k.cu", ".cpp files only")

    def test_heavy_header_in_two_layers(self):
        self.put("loam/base/b.cpp", "#include <nlohmann/json.hpp>\n")
        self.put("loam/config/c.cpp", "#include <nlohmann/json.hpp>\n")
        self.refuses("check_layers.py", "nlohmann-json is included by more than one layer", "base", "config")

    def test_highway_outside_kernels_and_text(self):
        self.put("loam/config/c.cpp", "#include <hwy/highway.h>\n")
        self.refuses("check_layers.py", "loam/config/c.cpp: Highway is for kernels and text only")

    def test_inl_header_used_from_another_folder(self):
        self.put("loam/kernels/k-inl.h", "#include <hwy/highway.h>\n")
        self.put("loam/align/x.cpp", '#include "loam/kernels/k-inl.h"\n')
        self.refuses("check_layers.py", "of its own folder")

    def test_folder_that_layers_does_not_know(self):
        self.put("loam/misc/m.h", "")
        self.refuses("check_layers.py", "'misc' is not in LAYERS")

    def test_layers_with_unknown_name(self):
        self.put("LAYERS", LAYERS + "extra: bsae\n")
        self.refuses("check_layers.py", "unknown layer 'bsae'")


def function(lines, head="int f(int x)"):
    return f"{head} {{\n" + "  x += 1;\n" * (lines - 2) + "}\n"


class Sizes(CheckTest):
    def test_accepts_the_limits_themselves(self):
        self.put("loam/base/f.cpp", "namespace loam {\n" + function(80) + function(80) + "}\n")
        self.put("loam/kernels/k.cu", function(150, "template <class T>\n__global__ void k(T x)".replace("\n", " ")))
        self.put("loam/base/long.cpp", "// x\n" * 700)
        self.put("loam/base/table.cpp", "const int kTable[] = {\n" + "1,\n" * 200 + "};\n" + "struct S {\n" + "int a;\n" * 200 + "};\n")
        self.put("loam/base/class.h", "class A : public B<int> {\n" + "  void f(int x) { x += 1; }\n" * 200 + "};\n")
        self.put("loam/base/quote.cpp", "const char* s = \"{\"; char c = '{';  // {\n/* { */ const int n = 1'000'000;\n" + function(80))
        self.accepts("check_sizes.py")

    def test_long_functions_of_every_form(self):
        heads = ["int f(int x)", "static auto f(int x) -> int", "A::A(int x) : a_(x), b_(2)", "template <class T, class = void>\nvoid f(T x)",
                 "bool A::operator==(const A& x) const", "TEST(Suite, Case)", "void f(int x = 3) noexcept",
                 "std::vector<std::pair<int, int>> f(struct stat x)"]
        for head in heads:
            lines = 81 - head.count("\n")
            self.put("loam/base/f.cpp", "namespace loam {\nnamespace {\n" + function(lines, head) + "}\n}\n")
            self.refuses("check_sizes.py", "loam/base/f.cpp:3: a function of 81 lines")

    def test_long_member_function(self):
        self.put("loam/base/f.h", "struct A {\n  int x = 0;\n public:\n" + function(81, "void f(int x)") + "};\n")
        self.refuses("check_sizes.py", "loam/base/f.h:4: a function of 81 lines")

    def test_lambda_counts_for_the_function_around_it(self):
        self.put("loam/base/f.cpp", "void f(int x) {\n" + "  auto g = [&] {\n" + "  x += 1;\n" * 78 + "  };\n}\n")
        self.refuses("check_sizes.py", "a function of 82 lines")

    def test_long_kernel(self):
        self.put("loam/kernels/k.cu", function(151, "__global__ void k(int x)"))
        self.refuses("check_sizes.py", "a function of 151 lines, more than 150")

    def test_host_function_of_a_cuda_file(self):
        self.put("loam/kernels/k.cu", function(81))
        self.refuses("check_sizes.py", "a function of 81 lines, more than 80")

    def test_long_file(self):
        self.put("tests/base/long.cpp", "// x\n" * 701)
        self.refuses("check_sizes.py", "tests/base/long.cpp: 701 lines")


class Docs(CheckTest):
    def test_accepts_links_that_lead_somewhere(self):
        self.put("docs/a.md", "# The Top\n[b](b.md) [base](../loam/base/a.h) [web](https://example.org/x.md) [here](#the-top)\n"
                 "[d](../docs) `[no](link.md)`\n```\n[no](link.md)\n```\n![p](b.md) [t](b.md \"title\") [h](b.md#one--two)\n[r]: b.md\n")
        self.put("docs/b.md", "## One & two\n")
        self.accepts("check_docs.py")

    def test_dead_link(self):
        self.put("README.md", "see [it](docs/none.md)\n")
        self.refuses("check_docs.py", "README.md: dead link docs/none.md")

    def test_dead_picture_and_reference(self):
        self.put("README.md", "![p](p.png)\n\n[r]: none.md\n")
        self.refuses("check_docs.py", "dead link p.png", "dead link none.md")

    def test_dead_anchor(self):
        self.put("README.md", "# Top\n[x](#bottom)\n")
        self.refuses("check_docs.py", "no heading for #bottom")

    def test_link_out_of_the_tree(self):
        self.put("README.md", "[x](../)\n")
        self.refuses("check_docs.py", "out of the tree")


class Format(CheckTest):
    def setUp(self):
        super().setUp()
        if shutil.which("clang-format-14") is None:
            self.skipTest("clang-format-14 is not installed")
        shutil.copy(TOOLS.parent / ".clang-format", self.root)

    def test_accepts_what_is_formatted(self):
        self.put("loam/base/b.cpp", "int f(int x) { return x; }\n")
        self.accepts("check_format.sh")

    def test_refuses_what_is_not(self):
        for suffix in ["cpp", "h", "cu", "cuh"]:
            self.put(f"loam/base/b.{suffix}", "int f( int x ){return x;}\n")
            status, output = self.run_check("check_format.sh")
            self.assertNotEqual(status, 0, output)
            self.assertIn(f"b.{suffix}", output)
            (self.root / f"loam/base/b.{suffix}").unlink()


if __name__ == "__main__":
    unittest.main()
