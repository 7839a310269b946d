"""The options of torch_npu's two graph backends, as torch_npu 2.13 has them.

Read from the installed sources of torchair and npugraph_ex, not only from their documentation.
Defaults are the libraries'; where a run of ours uses another one, the mode's file says why.
"""

from __future__ import annotations

from benchbench.modes.options import INT64_MAX, Option, Table

_SUPER_KERNEL_KEYS = {
    "preload_code": "int",
    "split_mode": "int",
    "stream_fusion": "int",
    "constant_codegen": "int",
    "auto_op_parallel": "int",
    "early_start": "int",
    "opt_extend": "str",
    "dcci_before_kernel_start": "str_list",
    "dcci_after_kernel_end": "str_list",
    "dcci_disable_on_kernel": "str_list",
    "ubuf_lock_ignore_kernel": "str_list",
    "aggressive_opt_strategies": "int_dict",
}
_SUPER_KERNEL_DEBUG_KEYS = {
    "debug_sync_all": "int",
    "debug_op_exec_trace": "int",
    "debug_cross_core_sync_check": "int",
    "debug_per_op_max_core_num": "int",
    "debug_extend": "str",
}

_EXPORT = "writes an offline model instead of running: nothing could be timed"
_NPUGRAPH_EX_ONLY = "belongs to npugraph_ex, max-autotune does not read it"

NPUGRAPH_EX = Table(
    "npugraph_ex",
    (
        Option(path="frozen_parameter", default=False, note="parameters keep their addresses"),
        Option(path="clone_input", default=True, note="copy inputs to fixed buffers, each call"),
        Option(path="clone_output", default=False, note="outputs survive the next replay"),
        Option(
            path="capture_limit",
            kind="int",
            default=64,
            low=1,
            high=INT64_MAX,
            note="graphs per FX graph; beyond it everything runs in eager",
        ),
        Option(path="reuse_graph_pool_in_same_fx", default=True, note="graphs share memory"),
        Option(
            path="capture_error_mode",
            kind="str",
            default="global",
            choices=("global", "thread_local", "relaxed"),
        ),
        Option(path="static_kernel_compile", default=False, note="exact kernels, minutes"),
        Option(
            path="disable_static_kernel_compile_cache",
            default=False,
            needs="static_kernel_compile",
        ),
        Option(path="super_kernel_optimize", default=False, needs="static_kernel_compile"),
        Option(
            path="super_kernel_optimize_options",
            kind="dict",
            keys=_SUPER_KERNEL_KEYS,
            needs="super_kernel_optimize",
        ),
        Option(
            path="super_kernel_debug_options",
            kind="dict",
            keys=_SUPER_KERNEL_DEBUG_KEYS,
            needs="super_kernel_optimize",
            diagnosis=True,
        ),
        Option(path="remove_noop_ops", default=True),
        Option(path="remove_cat_ops", default=True),
        Option(path="inplace_pass", default=True),
        Option(path="input_inplace_pass", default=True),
        Option(path="pattern_fusion_pass", default=True),
        Option(path="post_grad_custom_pre_pass", kind="function"),
        Option(path="post_grad_custom_post_pass", kind="function"),
        Option(path="force_eager", default=False, diagnosis=True, note="op by op, no capture"),
        Option(
            path="force_recapture",
            default=False,
            diagnosis=True,
            since="2.13",
            note="captures again in each call",
        ),
        Option(path="dump_tensor_data", default=False, diagnosis=True),
        Option(
            path="data_dump_stage",
            kind="str",
            default="optimized",
            choices=("optimized", "original"),
            needs="dump_tensor_data",
        ),
        Option(path="data_dump_dir", kind="folder", needs="dump_tensor_data"),
        Option(path="deadlock_check", default=False, diagnosis=True),
        Option(
            path="unsafe_skip_npugraph_capture_validation",
            default=False,
            since="2.13",
            note="wrong results if an address moves",
        ),
        Option(path="record_statistics_debug_info", default=False, since="2.13", diagnosis=True),
        Option(
            path="_vllm_aclnn_static_kernel_sym_index",
            kind="int",
            default=0,
            low=0,
            high=INT64_MAX,
            needs="static_kernel_compile",
        ),
        Option(
            path="_vllm_aclnn_static_kernel_sym_range",
            kind="int_list",
            needs="static_kernel_compile",
        ),
        Option(
            path="use_graph_pool",
            kind="str",
            refused="takes a pool handle of a running process, which no configuration can hold",
        ),
        Option(
            path="mode",
            kind="str",
            refused="a compile mode means nothing to npugraph_ex; choose the mode with mode=NAME",
        ),
        Option(
            path="compile_mode",
            kind="str",
            refused="a compile mode means nothing to npugraph_ex; choose the mode with mode=NAME",
        ),
    ),
)

_GE_OPTIONS = (
    Option(path="experimental_config.frozen_parameter", default=False),
    Option(path="experimental_config.tiling_schedule_optimize", default=False),
    Option(
        path="experimental_config.topology_sorting_strategy",
        kind="str",
        default="DFS",
        choices=("BFS", "DFS", "RDFS", "StableRDFS"),
    ),
    Option(path="experimental_config.keep_inference_input_mutations", default=True),
    Option(path="experimental_config.enable_ref_data", default=False),
    Option(path="experimental_config.enable_view_optimize", default=True),
    Option(path="experimental_config.remove_noop_ops", default=True),
    Option(path="experimental_config.pattern_fusion_pass", default=True),
    Option(path="experimental_config.memory_efficiency", default=False),
    Option(path="experimental_config.cc_parallel_enable", default=False, scope="global"),
    Option(
        path="experimental_config.static_model_ops_lower_limit",
        kind="int",
        low=-1,
        high=INT64_MAX,
        note="-1 never cuts a static sub-graph; 0 and 1 mean nothing",
    ),
    Option(path="experimental_config.jit_compile", kind="str", default="auto", choices=("auto",)),
    Option(path="experimental_config.npu_fx_pass", default=False),
    Option(path="experimental_config.aot_config_enable_joint_graph", default=False),
    Option(path="experimental_config.aot_config_output_loss_index", kind="int", default=0, low=0),
    Option(
        path="inference_config.dynamic_gears_merge_policy",
        kind="str",
        default="zip",
        choices=("zip", "product"),
    ),
    Option(path="ge_config.enable_single_stream", default=False, scope="global"),
    Option(
        path="ge_config.oo_level", kind="str", default="O3", choices=("O1", "O3"), scope="global"
    ),
    Option(path="ge_config.oo_constant_folding", scope="global"),
    Option(path="ge_config.oo_dead_code_elimination", scope="global"),
    Option(
        path="ge_config.aicore_num",
        kind="str",
        pattern=r"\d+\|\d+",
        example="24|48",
        scope="global",
        note="cube cores|vector cores; torchair takes any text unread",
    ),
    Option(
        path="ge_config.optimization_switch",
        kind="str",
        pattern=r"\w+:(on|off)(;\w+:(on|off))*;?",
        example="PassA:on;PassB:off",
        scope="global",
        note="torchair takes any text unread",
    ),
    Option(
        path="ge_config.multistream_parallel_mode",
        kind="str",
        pattern=r"\w+",
        example="cv",
        note="torchair takes any text unread",
    ),
    Option(
        path="ge_config.export_compile_stat",
        kind="str",
        default="0",
        choices=("0", "1", "2"),
        scope="global",
        note="torchair's own 2 writes fusion_result.json into the current folder",
    ),
    Option(path="fusion_config.fusion_switch_file", kind="file", scope="global"),
    Option(path="aoe_config.aoe_mode", kind="str", choices=("2",), note="operator tuning: hours"),
    Option(path="aoe_config.work_path", kind="folder", needs="aoe_config.aoe_mode"),
    Option(path="aoe_config.aoe_config_file", kind="file", needs="aoe_config.aoe_mode"),
)

_GE_DIAGNOSES = (
    Option(path="debug.run_eagerly", default=False, diagnosis=True, note="this is eager"),
    Option(
        path="debug.fx_summary.type",
        kind="str",
        choices=("csv",),
        diagnosis=True,
        timed_with="debug.fx_summary.skip_compile",
        note="with skip_compile (the default) the graph is not compiled at all",
    ),
    Option(path="debug.fx_summary.skip_compile", default=True, needs="debug.fx_summary.type"),
    Option(path="debug.graph_dump.type", kind="str", choices=("txt", "pbtxt", "py")),
    Option(path="debug.graph_dump.path", kind="folder", needs="debug.graph_dump.type"),
    Option(
        path="debug.data_dump.type",
        kind="str",
        choices=("npy",),
        diagnosis=True,
        note="runs in eager",
    ),
    Option(path="debug.data_dump.filter", kind="function", needs="debug.data_dump.type"),
    Option(path="debug.data_dump.path", kind="folder", needs="debug.data_dump.type"),
    Option(path="dump_config.enable_dump", default=False, scope="global", diagnosis=True),
    Option(path="dump_config.dump_path", kind="folder", needs="dump_config.enable_dump"),
    Option(
        path="dump_config.dump_mode",
        kind="str",
        default="all",
        choices=("all", "input", "output"),
        needs="dump_config.enable_dump",
    ),
    Option(path="dump_config.quant_dumpable", default=False, needs="dump_config.enable_dump"),
    Option(
        path="dump_config.dump_step",
        kind="str",
        pattern=r"\d+(-\d+)?(\|\d+(-\d+)?)*",
        example="0|2-5",
        needs="dump_config.enable_dump",
    ),
    Option(
        path="dump_config.dump_layer",
        kind="str",
        pattern=r'[0-9a-zA-Z_" "/\\.]*',
        example="Mul_1 Add1",
        needs="dump_config.enable_dump",
    ),
    Option(
        path="dump_config.dump_data",
        kind="str",
        default="tensor",
        choices=("tensor", "stats"),
        needs="dump_config.enable_dump",
    ),
    Option(path="dump_config.dump_config_path", kind="file", scope="global", diagnosis=True),
    Option(
        path="dump_config.data_dump_stage",
        kind="str",
        default="optimized",
        choices=("optimized", "original"),
        needs="dump_config.enable_dump",
    ),
)

_GE_OURS = (
    Option(path="post_grad_custom_pre_pass", kind="function"),
    Option(path="post_grad_custom_post_pass", kind="function"),
    Option(
        path="decompositions",
        kind="decompositions",
        default="none",
        scope="ours",
        note="custom_decompositions of get_npu_backend: 'core' or a list of ops",
    ),
    Option(
        path="dim_gears",
        kind="gears",
        scope="ours",
        example="{0: {0: [2, 4, 8]}}",
        note="{input: {dimension: [sizes]}}, input by position or name",
    ),
)

_GE_REFUSED = (
    Option(path="mode", kind="str", refused="is fixed to max-autotune; choose with mode=NAME"),
    Option(path="compile_mode", kind="str", refused="is fixed; choose the mode with mode=NAME"),
    *(
        Option(path=f"export.{name}", refused=_EXPORT)
        for name in (
            "export_mode",
            "export_path_dir",
            "export_name",
            "weight_name",
            "inputs_name",
            "experimental.enable_record_nn_module_stack",
            "experimental.auto_atc_config_generated",
            "experimental.enable_lite_export",
        )
    ),
    *(
        Option(path=path, refused=_NPUGRAPH_EX_ONLY)
        for path in (
            "debug.deadlock_check",
            "debug.aclgraph.disable_reinplace_inplaceable_ops_pass",
            "debug.aclgraph.disable_reinplace_input_mutated_ops_pass",
            "debug.aclgraph.disable_mempool_reuse_in_same_fx",
            "debug.aclgraph.enable_output_clone",
            "debug.aclgraph.static_capture_size_limit",
            "debug.aclgraph.clone_input",
            "debug.aclgraph.remove_cat_ops",
            "aclgraph_config.use_custom_pool",
            "experimental_config.aclgraph._aclnn_static_shape_kernel",
            "experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir",
            "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_value_range",
            "experimental_config.aclgraph._aclnn_static_shape_kernel_sym_index",
            "experimental_config.aclgraph._super_kernel_optimize",
            "experimental_config.aclgraph._super_kernel_optimize_options",
            "experimental_config.aclgraph._super_kernel_debug_options",
        )
    ),
)

TORCHAIR = Table(
    "max-autotune on npu (torchair)", _GE_OPTIONS + _GE_OURS + _GE_DIAGNOSES + _GE_REFUSED
)

# npugraph_ex option -> (path in torchair's CompilerConfig, whether its meaning is turned round).
# Needed only where torch_npu is too old to have the npugraph_ex backend.
LEGACY_PATHS: dict[str, tuple[str, bool]] = {
    "force_eager": ("debug.run_eagerly", False),
    "clone_input": ("debug.aclgraph.clone_input", False),
    "clone_output": ("debug.aclgraph.enable_output_clone", False),
    "capture_limit": ("debug.aclgraph.static_capture_size_limit", False),
    "frozen_parameter": ("experimental_config.frozen_parameter", False),
    "static_kernel_compile": ("experimental_config.aclgraph._aclnn_static_shape_kernel", False),
    "reuse_graph_pool_in_same_fx": ("debug.aclgraph.disable_mempool_reuse_in_same_fx", True),
    "inplace_pass": ("debug.aclgraph.disable_reinplace_inplaceable_ops_pass", True),
    "input_inplace_pass": ("debug.aclgraph.disable_reinplace_input_mutated_ops_pass", True),
    "remove_noop_ops": ("experimental_config.remove_noop_ops", False),
    "pattern_fusion_pass": ("experimental_config.pattern_fusion_pass", False),
    "post_grad_custom_pre_pass": ("post_grad_custom_pre_pass", False),
    "post_grad_custom_post_pass": ("post_grad_custom_post_pass", False),
}
