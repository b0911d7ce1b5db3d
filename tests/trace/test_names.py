import pytest

from gpudash.trace.names import copied, short, uses_tensor_cores

WITH_TENSOR_CORES = (
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_g1_tensor16x8x8_execute",
    "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_warpgroupsize1x1x1_g1_execute",
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_256x64_16x4>",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn",
    "volta_h884gemm_64x64_ldg8_nn",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN",
    "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)",
)
WITHOUT = (
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_g1_ffma_aligna4_execute",
    "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<int>(int)",
    "cutlass_80_simt_sgemm_128x64_8x5_nn_align1",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>(int)",
    "void tensorTransformGeneric<float, float, float, true>(cudnnTensorTransformStruct)",
    "void at::native::vectorized_elementwise_kernel<4, lgamma_functor>(int)",
    "triton_poi_fused_add_0",
)


@pytest.mark.parametrize("kernel", [*WITH_TENSOR_CORES, *WITHOUT])
def test_a_kernels_name_says_whether_it_uses_tensor_cores(kernel):
    assert uses_tensor_cores(kernel) == (kernel in WITH_TENSOR_CORES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pinned -> Device)", ("to device", True)),
        ("Memcpy HtoD (Pageable -> Device)", ("to device", False)),
        ("Memcpy DtoH (Device -> Pinned)", ("to host", True)),
        ("Memcpy DtoH (Device -> Pageable)", ("to host", False)),
        ("Memcpy DtoD (Device -> Device)", ("on device", None)),
        ("Memcpy PtoP (Device -> Device)", ("other", None)),
        ("Memcpy HtoD", ("to device", None)),
        ("something else", ("other", None)),
    ],
)
def test_a_copys_name_has_its_direction_and_the_hosts_memory(name, expected):
    assert copied(name) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("gemm", "gemm"),
        (
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
                "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>)"
            ),
            "vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul> >",
        ),
        (
            "void at::native::(anonymous namespace)::fused_dropout<float, (int)2>(float*)",
            "fused_dropout<float, (int)2>",
        ),
        ("", ""),
    ],
)
def test_a_short_name_has_neither_arguments_nor_namespaces(kernel, expected):
    assert short(kernel) == expected
