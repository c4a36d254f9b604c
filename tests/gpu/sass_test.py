#!/usr/bin/env python3
"""Tests of the reader of machine code and of the comparison, on code and numbers of their own."""

import unittest

from sass import Graph, read_functions
from sass_guard import complaints, is_tensor, is_wide_load, resources, serialized, short_name, slots_of_byte, tile_of_attention

# A loop of 6 instructions with 2 matrix instructions; in it a loop of 3 with one copy, and a branch around 2 others.
CODE = """
	.section	.text._Zkernel,"ax",@progbits
.text._Zkernel:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/                   STL [R1], R2 ;
.L_x_0:
        /*0020*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
.L_x_1:
        /*0030*/                   LDGSTS.E.BYPASS.128 [R2], desc[UR4][R6.64] ;
        /*0040*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0050*/              @!P0 BRA `(.L_x_1) ;
        /*0060*/               @P1 BRA `(.L_x_2) ;
        /*0070*/                   LDL R3, [R1] ;
        /*0080*/                   MUFU.EX2 R3, R3 ;
.L_x_2:
        /*0090*/                   HMMA.16816.F32 R4, R8, R14, R4 ;
        /*00a0*/              @!P2 BRA `(.L_x_0) ;
        /*00b0*/                   EXIT ;
.L_x_3:
        /*00c0*/                   BRA `(.L_x_3);
	.section	.text._Zother,"ax",@progbits
.text._Zother:
        /*0000*/                   EXIT ;
"""


class Reader(unittest.TestCase):
    def setUp(self):
        functions = read_functions(CODE)
        self.assertEqual(list(functions), ["_Zkernel", "_Zother"])
        self.graph = Graph(functions["_Zkernel"])

    def test_loops_are_those_of_the_code_that_is_reached(self):
        sizes = sorted(len(list(self.graph.instructions(body))) for body in self.graph.loops.values())
        self.assertEqual(sizes, [3, 9])
        self.assertEqual(len(self.graph.innermost()), 1)

    def test_local_accesses_count_in_loops_only(self):
        self.assertEqual(sum(i.has("LDL", "STL") for i in self.graph.in_loops()), 1)

    def test_a_path_has_all_the_work_and_no_detour_and_inner_loops_run_as_often_as_is_said(self):
        head = max(self.graph.loops, key=lambda h: len(self.graph.loops[h]))
        work = lambda i: is_tensor(i) or is_wide_load(i)
        self.assertEqual(self.graph.path_through(head, work, lambda _: 1), (3, 7))
        self.assertEqual(self.graph.path_through(head, work, lambda _: 8), (10, 28))

    def test_a_tile_copies_as_the_shape_says(self):
        # 16 bytes x 8 by each thread for codes of 128; for bfloat16 of 128 as many of K and of V.
        self.assertEqual(tile_of_attention(self.graph, "attend_with_matrices_kernel<E4m3Fn,128>"), (2, 28))
        self.assertEqual(tile_of_attention(self.graph, "attend_with_matrices_kernel<BF16,128>"), (2, 28))
        self.assertEqual(tile_of_attention(self.graph, "attend_with_matrices_kernel<BF16,64>"), (2, 16))

    def test_a_tile_has_the_loop_that_converts_codes_though_a_branch_leads_around_it(self):
        loop = ["LDS.128 R4, [R2] ;", "F2FP.F16.E4M3.UNPACK_B R8, R4 ;", "STS.128 [R3], R8 ;", "@!P0 BRA `(.L_x_1) ;"]
        lines = ["HMMA.16816.F32 R4, R8, R12, R4 ;", "@P1 BRA `(.L_x_2) ;", ".L_x_1:", *loop, ".L_x_2:", "@!P2 BRA `(.L_x_0) ;",
                 "EXIT ;"]
        code = '\t.section\t.text._Zd,"ax"\n.L_x_0:\n' + "".join(
            f"{line}\n" if line.startswith(".") else f"        /*{16 * i:04x}*/  {line}\n" for i, line in enumerate(lines))
        graph = Graph(read_functions(code)["_Zd"])
        self.assertEqual(tile_of_attention(graph, "attend_with_matrices_kernel<E4m3Fn,128>"), (1, 3 + 8 * 4))

    def test_slots_of_a_byte_are_those_of_the_loops_that_multiply(self):
        lines = ["FFMA R0, R1, R2, R0 ;"] * 16 + ["LDS.128 R4, [R2] ;"] * 15 + ["@P0 BRA `(.L_x_0) ;", "EXIT ;"]
        code = '\t.section\t.text._Zd,"ax"\n.L_x_0:\n' + "".join(f"        /*{16 * i:04x}*/  {line}\n"
                                                            for i, line in enumerate(lines))
        graph = Graph(read_functions(code)["_Zd"])
        self.assertEqual(slots_of_byte(graph, "decode_kernel<E4m3Fn,1>"), 2.0)
        self.assertEqual(slots_of_byte(graph, "decode_kernel<E4m3Fn,4>"), 8.0)
        self.assertEqual(slots_of_byte(graph, "decode_kernel<BF16,1>"), 1.0)

    def test_names_are_short(self):
        place = "kvcal::gpu::(anonymous namespace)::"
        self.assertEqual(short_name(f"void {place}decode_kernel<kvcal::fp8::Code<(kvcal::fp8::Format)0>, 4>"
                                    f"(kvcal::AttentionArgs, {place}Stretches)"), "decode_kernel<E4m3Fn,4>")
        self.assertEqual(short_name(f"{place}combine_kernel(kvcal::AttentionArgs)"), "combine_kernel")

    def test_resources_are_read_from_what_ptxas_says(self):
        said = ("ptxas info    : Compiling entry function '_Zkernel' for 'sm_90'\n"
                "ptxas info    : Function properties for _Zkernel\n"
                "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
                "ptxas info    : Used 255 registers, used 1 barriers\n")
        self.assertEqual(resources(said), {"_Zkernel": (255, 12)})


    def test_products_of_warpgroups_that_wait_for_each_other_are_found(self):
        line = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
                "insufficient register resources in the function '_Zkernel'")
        self.assertEqual(serialized("ptxas info    : Used 255 registers\n" + line + "\n"), line)
        self.assertEqual(serialized("ptxas info    : Used 255 registers\n"), "")

    def test_a_tile_of_warpgroups_has_the_instructions_of_its_round(self):
        lines = ["HGMMA.64x64x16.F32 R24, R120, gdesc[UR4], RZ, !UPT ;", "STS.128 [R3], R8 ;", "@!P0 BRA `(.L_x_0) ;", "EXIT ;"]
        code = '\t.section\t.text._Zd,"ax"\n.L_x_0:\n' + "".join(f"        /*{16 * i:04x}*/  {line}\n"
                                                            for i, line in enumerate(lines))
        graph = Graph(read_functions(code)["_Zd"])
        self.assertEqual(tile_of_attention(graph, "attend_with_warpgroups_kernel<E4m3Fn,128>"), (1, 3))


class Comparison(unittest.TestCase):
    KNOWN = {"registers": 100, "spilled": 0, "local": 0, "wide": 80, "tensor": 256, "slots": 2500}

    def worse(self, **changes):
        return len(complaints(("sm_90", "file", "kernel"), self.KNOWN | changes, self.KNOWN)[0])

    def test_a_tenth_is_the_limit(self):
        self.assertEqual(self.worse(), 0)
        self.assertEqual(self.worse(registers=110, slots=2750, wide=72), 0)
        self.assertEqual(self.worse(registers=111), 1)
        self.assertEqual(self.worse(slots=2751), 1)
        self.assertEqual(self.worse(wide=71), 1)
        self.assertEqual(self.worse(tensor=128), 1)

    def test_spills_and_local_accesses_have_no_slack(self):
        self.assertEqual(self.worse(spilled=4, local=1), 2)

    def test_what_is_no_longer_counted_is_a_difference(self):
        self.assertEqual(self.worse(slots="-"), 1)

    def test_what_is_better_is_told_apart(self):
        better = complaints(("sm_90", "file", "kernel"), self.KNOWN | {"slots": 1750}, self.KNOWN)[1]
        self.assertEqual(better, ["sm_90 file kernel: slots 1750, expected 2500"])


if __name__ == "__main__":
    unittest.main()
