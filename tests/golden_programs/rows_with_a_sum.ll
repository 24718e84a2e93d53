; loop|2|inner|f32:unit,f32:unit:same,f32:unit,f32:zero|[][3][2]|const:f32()1.0;const:f32()-1.0;const:f32()8.8524751663208;const:f32()-8.8524751663208;load:f32()0;load:f32()1;add:f32(4,5)None;maxr:f32(3,6)None;minr:f32(2,7)None;const:f32()-8.222524223999716e-14;mul:f32(8,8)None;const:f32()5.175087441910975e-11;fma:f32(9,10,11)None;const:f32()-2.0013052548506494e-08;fma:f32(12,10,13)None;const:f32()1.110226094169775e-05;fma:f32(14,10,15)None;const:f32()0.0030989916995167732;fma:f32(16,10,17)None;const:f32()0.1307956725358963;fma:f32(18,10,19)None;fma:f32(20,10,0)None;mul:f32(8,21)None;const:f32()0.00025389096117578447;const:f32()0.02447541616857052;fma:f32(23,10,24)None;const:f32()0.46412894129753113;fma:f32(25,10,26)None;fma:f32(27,10,0)None;div:f32(22,28)None;maxr:f32(1,29)None;minr:f32(0,30)None;reduced:f32(31)('sum', 1)->32,31
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, <8 x i1>)
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load i64, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load i64, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load ptr, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load i64, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load ptr, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load ptr, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %p22 = getelementptr i64, ptr %args, i64 11
  %a23 = load ptr, ptr %p22, align 8
  %p24 = getelementptr i64, ptr %args, i64 12
  %a25 = load i64, ptr %p24, align 8
  %p26 = getelementptr i64, ptr %args, i64 13
  %a27 = load i64, ptr %p26, align 8
  %c28 = icmp sle i64 %a3, 1280
  %i29 = sub i64 %end, %begin
  %i30 = select i1 %c28, i64 %i29, i64 0
  %i31 = and i64 %i30, -2
  %i32 = add i64 %begin, %i31
  %c35 = icmp slt i64 %begin, %i32
  br i1 %c35, label %loop33, label %done34
loop33:
  %i36 = phi i64 [ %begin, %entry ], [ %i422, %after353 ]
  %i37 = add i64 %i36, 1
  %i38 = mul i64 %i36, %a7
  %p39 = getelementptr float, ptr %a5, i64 %i38
  %i40 = mul i64 %i36, %a13
  %p41 = getelementptr float, ptr %a11, i64 %i40
  %i42 = mul i64 %i36, %a19
  %p43 = getelementptr float, ptr %a17, i64 %i42
  %i44 = mul i64 %i36, %a25
  %p45 = getelementptr float, ptr %a23, i64 %i44
  %i46 = mul i64 %i37, %a7
  %p47 = getelementptr float, ptr %a5, i64 %i46
  %i48 = mul i64 %i37, %a13
  %p49 = getelementptr float, ptr %a11, i64 %i48
  %i50 = mul i64 %i37, %a19
  %p51 = getelementptr float, ptr %a17, i64 %i50
  %i52 = mul i64 %i37, %a25
  %p53 = getelementptr float, ptr %a23, i64 %i52
  %i54 = and i64 %a3, -32
  %c57 = icmp slt i64 0, %i54
  br i1 %c57, label %loop55, label %done56
loop55:
  %i58 = phi i64 [ 0, %loop33 ], [ %i278, %loop55 ]
  %r59 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v166, %loop55 ]
  %r60 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v168, %loop55 ]
  %r61 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v170, %loop55 ]
  %r62 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v172, %loop55 ]
  %r63 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v270, %loop55 ]
  %r64 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v272, %loop55 ]
  %r65 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v274, %loop55 ]
  %r66 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v276, %loop55 ]
  %i67 = add i64 %i58, 8
  %i68 = add i64 %i58, 16
  %i69 = add i64 %i58, 24
  %p70 = getelementptr float, ptr %p39, i64 %i58
  %v71 = load <8 x float>, ptr %p70, align 4
  %p72 = getelementptr float, ptr %p41, i64 %i58
  %v73 = load <8 x float>, ptr %p72, align 4
  %p74 = getelementptr float, ptr %p47, i64 %i58
  %v75 = load <8 x float>, ptr %p74, align 4
  %p76 = getelementptr float, ptr %p39, i64 %i67
  %v77 = load <8 x float>, ptr %p76, align 4
  %p78 = getelementptr float, ptr %p41, i64 %i67
  %v79 = load <8 x float>, ptr %p78, align 4
  %p80 = getelementptr float, ptr %p47, i64 %i67
  %v81 = load <8 x float>, ptr %p80, align 4
  %v82 = fadd <8 x float> %v71, %v73
  %v83 = fadd <8 x float> %v75, %v73
  %v84 = fadd <8 x float> %v77, %v79
  %v85 = fadd <8 x float> %v81, %v79
  %v86 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v82
  %v87 = select <8 x i1> %v86, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v82
  %v88 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v83
  %v89 = select <8 x i1> %v88, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v83
  %v90 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v84
  %v91 = select <8 x i1> %v90, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v84
  %v92 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v85
  %v93 = select <8 x i1> %v92, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v85
  %v94 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v87
  %v95 = select <8 x i1> %v94, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v87
  %v96 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v89
  %v97 = select <8 x i1> %v96, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v89
  %v98 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v91
  %v99 = select <8 x i1> %v98, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v91
  %v100 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v93
  %v101 = select <8 x i1> %v100, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v93
  %v102 = fmul <8 x float> %v95, %v95
  %v103 = fmul <8 x float> %v97, %v97
  %v104 = fmul <8 x float> %v99, %v99
  %v105 = fmul <8 x float> %v101, %v101
  %v106 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v102, <8 x float> splat (float 0x3DCC7349C0000000))
  %v107 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v103, <8 x float> splat (float 0x3DCC7349C0000000))
  %v108 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v104, <8 x float> splat (float 0x3DCC7349C0000000))
  %v109 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v105, <8 x float> splat (float 0x3DCC7349C0000000))
  %v110 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v106, <8 x float> %v102, <8 x float> splat (float 0xBE557D2560000000))
  %v111 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v107, <8 x float> %v103, <8 x float> splat (float 0xBE557D2560000000))
  %v112 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v108, <8 x float> %v104, <8 x float> splat (float 0xBE557D2560000000))
  %v113 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v109, <8 x float> %v105, <8 x float> splat (float 0xBE557D2560000000))
  %v114 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v110, <8 x float> %v102, <8 x float> splat (float 0x3EE7487B20000000))
  %v115 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v111, <8 x float> %v103, <8 x float> splat (float 0x3EE7487B20000000))
  %v116 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v112, <8 x float> %v104, <8 x float> splat (float 0x3EE7487B20000000))
  %v117 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v113, <8 x float> %v105, <8 x float> splat (float 0x3EE7487B20000000))
  %v118 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v114, <8 x float> %v102, <8 x float> splat (float 0x3F69630E80000000))
  %v119 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v115, <8 x float> %v103, <8 x float> splat (float 0x3F69630E80000000))
  %v120 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v116, <8 x float> %v104, <8 x float> splat (float 0x3F69630E80000000))
  %v121 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v117, <8 x float> %v105, <8 x float> splat (float 0x3F69630E80000000))
  %v122 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v118, <8 x float> %v102, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v123 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v119, <8 x float> %v103, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v124 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v120, <8 x float> %v104, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v125 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v121, <8 x float> %v105, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v126 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v122, <8 x float> %v102, <8 x float> splat (float 0x3FF0000000000000))
  %v127 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v123, <8 x float> %v103, <8 x float> splat (float 0x3FF0000000000000))
  %v128 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v124, <8 x float> %v104, <8 x float> splat (float 0x3FF0000000000000))
  %v129 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v125, <8 x float> %v105, <8 x float> splat (float 0x3FF0000000000000))
  %v130 = fmul <8 x float> %v95, %v126
  %v131 = fmul <8 x float> %v97, %v127
  %v132 = fmul <8 x float> %v99, %v128
  %v133 = fmul <8 x float> %v101, %v129
  %v134 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v102, <8 x float> splat (float 0x3F99101560000000))
  %v135 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v103, <8 x float> splat (float 0x3F99101560000000))
  %v136 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v104, <8 x float> splat (float 0x3F99101560000000))
  %v137 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v105, <8 x float> splat (float 0x3F99101560000000))
  %v138 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v134, <8 x float> %v102, <8 x float> splat (float 0x3FDDB449E0000000))
  %v139 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v135, <8 x float> %v103, <8 x float> splat (float 0x3FDDB449E0000000))
  %v140 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v136, <8 x float> %v104, <8 x float> splat (float 0x3FDDB449E0000000))
  %v141 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v137, <8 x float> %v105, <8 x float> splat (float 0x3FDDB449E0000000))
  %v142 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v138, <8 x float> %v102, <8 x float> splat (float 0x3FF0000000000000))
  %v143 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v139, <8 x float> %v103, <8 x float> splat (float 0x3FF0000000000000))
  %v144 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v140, <8 x float> %v104, <8 x float> splat (float 0x3FF0000000000000))
  %v145 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v141, <8 x float> %v105, <8 x float> splat (float 0x3FF0000000000000))
  %v146 = fdiv <8 x float> %v130, %v142
  %v147 = fdiv <8 x float> %v131, %v143
  %v148 = fdiv <8 x float> %v132, %v144
  %v149 = fdiv <8 x float> %v133, %v145
  %v150 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v146
  %v151 = select <8 x i1> %v150, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v146
  %v152 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v147
  %v153 = select <8 x i1> %v152, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v147
  %v154 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v148
  %v155 = select <8 x i1> %v154, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v148
  %v156 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v149
  %v157 = select <8 x i1> %v156, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v149
  %v158 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v151
  %v159 = select <8 x i1> %v158, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v151
  %v160 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v153
  %v161 = select <8 x i1> %v160, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v153
  %v162 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v155
  %v163 = select <8 x i1> %v162, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v155
  %v164 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v157
  %v165 = select <8 x i1> %v164, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v157
  %v166 = fadd <8 x float> %r59, %v159
  %p167 = getelementptr float, ptr %p43, i64 %i58
  store <8 x float> %v159, ptr %p167, align 4
  %v168 = fadd <8 x float> %r60, %v161
  %p169 = getelementptr float, ptr %p51, i64 %i58
  store <8 x float> %v161, ptr %p169, align 4
  %v170 = fadd <8 x float> %r61, %v163
  %p171 = getelementptr float, ptr %p43, i64 %i67
  store <8 x float> %v163, ptr %p171, align 4
  %v172 = fadd <8 x float> %r62, %v165
  %p173 = getelementptr float, ptr %p51, i64 %i67
  store <8 x float> %v165, ptr %p173, align 4
  %p174 = getelementptr float, ptr %p39, i64 %i68
  %v175 = load <8 x float>, ptr %p174, align 4
  %p176 = getelementptr float, ptr %p41, i64 %i68
  %v177 = load <8 x float>, ptr %p176, align 4
  %p178 = getelementptr float, ptr %p47, i64 %i68
  %v179 = load <8 x float>, ptr %p178, align 4
  %p180 = getelementptr float, ptr %p39, i64 %i69
  %v181 = load <8 x float>, ptr %p180, align 4
  %p182 = getelementptr float, ptr %p41, i64 %i69
  %v183 = load <8 x float>, ptr %p182, align 4
  %p184 = getelementptr float, ptr %p47, i64 %i69
  %v185 = load <8 x float>, ptr %p184, align 4
  %v186 = fadd <8 x float> %v175, %v177
  %v187 = fadd <8 x float> %v179, %v177
  %v188 = fadd <8 x float> %v181, %v183
  %v189 = fadd <8 x float> %v185, %v183
  %v190 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v186
  %v191 = select <8 x i1> %v190, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v186
  %v192 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v187
  %v193 = select <8 x i1> %v192, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v187
  %v194 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v188
  %v195 = select <8 x i1> %v194, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v188
  %v196 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v189
  %v197 = select <8 x i1> %v196, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v189
  %v198 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v191
  %v199 = select <8 x i1> %v198, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v191
  %v200 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v193
  %v201 = select <8 x i1> %v200, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v193
  %v202 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v195
  %v203 = select <8 x i1> %v202, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v195
  %v204 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v197
  %v205 = select <8 x i1> %v204, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v197
  %v206 = fmul <8 x float> %v199, %v199
  %v207 = fmul <8 x float> %v201, %v201
  %v208 = fmul <8 x float> %v203, %v203
  %v209 = fmul <8 x float> %v205, %v205
  %v210 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v206, <8 x float> splat (float 0x3DCC7349C0000000))
  %v211 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v207, <8 x float> splat (float 0x3DCC7349C0000000))
  %v212 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v208, <8 x float> splat (float 0x3DCC7349C0000000))
  %v213 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v209, <8 x float> splat (float 0x3DCC7349C0000000))
  %v214 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v210, <8 x float> %v206, <8 x float> splat (float 0xBE557D2560000000))
  %v215 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v211, <8 x float> %v207, <8 x float> splat (float 0xBE557D2560000000))
  %v216 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v212, <8 x float> %v208, <8 x float> splat (float 0xBE557D2560000000))
  %v217 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v213, <8 x float> %v209, <8 x float> splat (float 0xBE557D2560000000))
  %v218 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v214, <8 x float> %v206, <8 x float> splat (float 0x3EE7487B20000000))
  %v219 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v215, <8 x float> %v207, <8 x float> splat (float 0x3EE7487B20000000))
  %v220 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v216, <8 x float> %v208, <8 x float> splat (float 0x3EE7487B20000000))
  %v221 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v217, <8 x float> %v209, <8 x float> splat (float 0x3EE7487B20000000))
  %v222 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v218, <8 x float> %v206, <8 x float> splat (float 0x3F69630E80000000))
  %v223 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v219, <8 x float> %v207, <8 x float> splat (float 0x3F69630E80000000))
  %v224 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v220, <8 x float> %v208, <8 x float> splat (float 0x3F69630E80000000))
  %v225 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v221, <8 x float> %v209, <8 x float> splat (float 0x3F69630E80000000))
  %v226 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v222, <8 x float> %v206, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v227 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v223, <8 x float> %v207, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v228 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v224, <8 x float> %v208, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v229 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v225, <8 x float> %v209, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v230 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v226, <8 x float> %v206, <8 x float> splat (float 0x3FF0000000000000))
  %v231 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v227, <8 x float> %v207, <8 x float> splat (float 0x3FF0000000000000))
  %v232 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v228, <8 x float> %v208, <8 x float> splat (float 0x3FF0000000000000))
  %v233 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v229, <8 x float> %v209, <8 x float> splat (float 0x3FF0000000000000))
  %v234 = fmul <8 x float> %v199, %v230
  %v235 = fmul <8 x float> %v201, %v231
  %v236 = fmul <8 x float> %v203, %v232
  %v237 = fmul <8 x float> %v205, %v233
  %v238 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v206, <8 x float> splat (float 0x3F99101560000000))
  %v239 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v207, <8 x float> splat (float 0x3F99101560000000))
  %v240 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v208, <8 x float> splat (float 0x3F99101560000000))
  %v241 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v209, <8 x float> splat (float 0x3F99101560000000))
  %v242 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v238, <8 x float> %v206, <8 x float> splat (float 0x3FDDB449E0000000))
  %v243 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v239, <8 x float> %v207, <8 x float> splat (float 0x3FDDB449E0000000))
  %v244 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v240, <8 x float> %v208, <8 x float> splat (float 0x3FDDB449E0000000))
  %v245 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v241, <8 x float> %v209, <8 x float> splat (float 0x3FDDB449E0000000))
  %v246 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v242, <8 x float> %v206, <8 x float> splat (float 0x3FF0000000000000))
  %v247 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v243, <8 x float> %v207, <8 x float> splat (float 0x3FF0000000000000))
  %v248 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v244, <8 x float> %v208, <8 x float> splat (float 0x3FF0000000000000))
  %v249 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v245, <8 x float> %v209, <8 x float> splat (float 0x3FF0000000000000))
  %v250 = fdiv <8 x float> %v234, %v246
  %v251 = fdiv <8 x float> %v235, %v247
  %v252 = fdiv <8 x float> %v236, %v248
  %v253 = fdiv <8 x float> %v237, %v249
  %v254 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v250
  %v255 = select <8 x i1> %v254, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v250
  %v256 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v251
  %v257 = select <8 x i1> %v256, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v251
  %v258 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v252
  %v259 = select <8 x i1> %v258, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v252
  %v260 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v253
  %v261 = select <8 x i1> %v260, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v253
  %v262 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v255
  %v263 = select <8 x i1> %v262, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v255
  %v264 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v257
  %v265 = select <8 x i1> %v264, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v257
  %v266 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v259
  %v267 = select <8 x i1> %v266, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v259
  %v268 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v261
  %v269 = select <8 x i1> %v268, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v261
  %v270 = fadd <8 x float> %r63, %v263
  %p271 = getelementptr float, ptr %p43, i64 %i68
  store <8 x float> %v263, ptr %p271, align 4
  %v272 = fadd <8 x float> %r64, %v265
  %p273 = getelementptr float, ptr %p51, i64 %i68
  store <8 x float> %v265, ptr %p273, align 4
  %v274 = fadd <8 x float> %r65, %v267
  %p275 = getelementptr float, ptr %p43, i64 %i69
  store <8 x float> %v267, ptr %p275, align 4
  %v276 = fadd <8 x float> %r66, %v269
  %p277 = getelementptr float, ptr %p51, i64 %i69
  store <8 x float> %v269, ptr %p277, align 4
  %i278 = add nsw i64 %i58, 32
  %c279 = icmp slt i64 %i278, %i54
  br i1 %c279, label %loop55, label %done56
done56:
  %r280 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v166, %loop55 ]
  %r281 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v168, %loop55 ]
  %r282 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v170, %loop55 ]
  %r283 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v172, %loop55 ]
  %r284 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v270, %loop55 ]
  %r285 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v272, %loop55 ]
  %r286 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v274, %loop55 ]
  %r287 = phi <8 x float> [ splat (float 0x0000000000000000), %loop33 ], [ %v276, %loop55 ]
  %i288 = and i64 %a3, -8
  %c291 = icmp slt i64 %i54, %i288
  br i1 %c291, label %loop289, label %done290
loop289:
  %i292 = phi i64 [ %i54, %done56 ], [ %i347, %loop289 ]
  %r293 = phi <8 x float> [ %r280, %done56 ], [ %v343, %loop289 ]
  %r294 = phi <8 x float> [ %r281, %done56 ], [ %v345, %loop289 ]
  %p295 = getelementptr float, ptr %p39, i64 %i292
  %v296 = load <8 x float>, ptr %p295, align 4
  %p297 = getelementptr float, ptr %p41, i64 %i292
  %v298 = load <8 x float>, ptr %p297, align 4
  %p299 = getelementptr float, ptr %p47, i64 %i292
  %v300 = load <8 x float>, ptr %p299, align 4
  %v301 = fadd <8 x float> %v296, %v298
  %v302 = fadd <8 x float> %v300, %v298
  %v303 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v301
  %v304 = select <8 x i1> %v303, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v301
  %v305 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v302
  %v306 = select <8 x i1> %v305, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v302
  %v307 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v304
  %v308 = select <8 x i1> %v307, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v304
  %v309 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v306
  %v310 = select <8 x i1> %v309, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v306
  %v311 = fmul <8 x float> %v308, %v308
  %v312 = fmul <8 x float> %v310, %v310
  %v313 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v311, <8 x float> splat (float 0x3DCC7349C0000000))
  %v314 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v312, <8 x float> splat (float 0x3DCC7349C0000000))
  %v315 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v313, <8 x float> %v311, <8 x float> splat (float 0xBE557D2560000000))
  %v316 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v314, <8 x float> %v312, <8 x float> splat (float 0xBE557D2560000000))
  %v317 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v315, <8 x float> %v311, <8 x float> splat (float 0x3EE7487B20000000))
  %v318 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v316, <8 x float> %v312, <8 x float> splat (float 0x3EE7487B20000000))
  %v319 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v317, <8 x float> %v311, <8 x float> splat (float 0x3F69630E80000000))
  %v320 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v318, <8 x float> %v312, <8 x float> splat (float 0x3F69630E80000000))
  %v321 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v319, <8 x float> %v311, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v322 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v320, <8 x float> %v312, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v323 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v321, <8 x float> %v311, <8 x float> splat (float 0x3FF0000000000000))
  %v324 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v312, <8 x float> splat (float 0x3FF0000000000000))
  %v325 = fmul <8 x float> %v308, %v323
  %v326 = fmul <8 x float> %v310, %v324
  %v327 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v311, <8 x float> splat (float 0x3F99101560000000))
  %v328 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v312, <8 x float> splat (float 0x3F99101560000000))
  %v329 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v327, <8 x float> %v311, <8 x float> splat (float 0x3FDDB449E0000000))
  %v330 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v312, <8 x float> splat (float 0x3FDDB449E0000000))
  %v331 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v329, <8 x float> %v311, <8 x float> splat (float 0x3FF0000000000000))
  %v332 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v330, <8 x float> %v312, <8 x float> splat (float 0x3FF0000000000000))
  %v333 = fdiv <8 x float> %v325, %v331
  %v334 = fdiv <8 x float> %v326, %v332
  %v335 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v333
  %v336 = select <8 x i1> %v335, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v333
  %v337 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v334
  %v338 = select <8 x i1> %v337, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v334
  %v339 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v336
  %v340 = select <8 x i1> %v339, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v336
  %v341 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v338
  %v342 = select <8 x i1> %v341, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v338
  %v343 = fadd <8 x float> %r293, %v340
  %p344 = getelementptr float, ptr %p43, i64 %i292
  store <8 x float> %v340, ptr %p344, align 4
  %v345 = fadd <8 x float> %r294, %v342
  %p346 = getelementptr float, ptr %p51, i64 %i292
  store <8 x float> %v342, ptr %p346, align 4
  %i347 = add nsw i64 %i292, 8
  %c348 = icmp slt i64 %i347, %i288
  br i1 %c348, label %loop289, label %done290
done290:
  %r349 = phi <8 x float> [ %r280, %done56 ], [ %v343, %loop289 ]
  %r350 = phi <8 x float> [ %r281, %done56 ], [ %v345, %loop289 ]
  %i351 = sub i64 %a3, %i288
  %c354 = icmp sgt i64 %i351, 0
  br i1 %c354, label %tail352, label %after353
tail352:
  %v355 = insertelement <8 x i64> poison, i64 %i351, i32 0
  %v356 = shufflevector <8 x i64> %v355, <8 x i64> poison, <8 x i32> zeroinitializer
  %m357 = icmp sgt <8 x i64> %v356, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p358 = getelementptr float, ptr %p39, i64 %i288
  %v359 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p358, <8 x i1> %m357, <8 x float> zeroinitializer)
  %p360 = getelementptr float, ptr %p41, i64 %i288
  %v361 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p360, <8 x i1> %m357, <8 x float> zeroinitializer)
  %p362 = getelementptr float, ptr %p47, i64 %i288
  %v363 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p362, <8 x i1> %m357, <8 x float> zeroinitializer)
  %v364 = fadd <8 x float> %v359, %v361
  %v365 = fadd <8 x float> %v363, %v361
  %v366 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v364
  %v367 = select <8 x i1> %v366, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v364
  %v368 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v365
  %v369 = select <8 x i1> %v368, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v365
  %v370 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v367
  %v371 = select <8 x i1> %v370, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v367
  %v372 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v369
  %v373 = select <8 x i1> %v372, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v369
  %v374 = fmul <8 x float> %v371, %v371
  %v375 = fmul <8 x float> %v373, %v373
  %v376 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v374, <8 x float> splat (float 0x3DCC7349C0000000))
  %v377 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v375, <8 x float> splat (float 0x3DCC7349C0000000))
  %v378 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v376, <8 x float> %v374, <8 x float> splat (float 0xBE557D2560000000))
  %v379 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v377, <8 x float> %v375, <8 x float> splat (float 0xBE557D2560000000))
  %v380 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v378, <8 x float> %v374, <8 x float> splat (float 0x3EE7487B20000000))
  %v381 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v379, <8 x float> %v375, <8 x float> splat (float 0x3EE7487B20000000))
  %v382 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v380, <8 x float> %v374, <8 x float> splat (float 0x3F69630E80000000))
  %v383 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v381, <8 x float> %v375, <8 x float> splat (float 0x3F69630E80000000))
  %v384 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v382, <8 x float> %v374, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v385 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v383, <8 x float> %v375, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v386 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v384, <8 x float> %v374, <8 x float> splat (float 0x3FF0000000000000))
  %v387 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v385, <8 x float> %v375, <8 x float> splat (float 0x3FF0000000000000))
  %v388 = fmul <8 x float> %v371, %v386
  %v389 = fmul <8 x float> %v373, %v387
  %v390 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v374, <8 x float> splat (float 0x3F99101560000000))
  %v391 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v375, <8 x float> splat (float 0x3F99101560000000))
  %v392 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v390, <8 x float> %v374, <8 x float> splat (float 0x3FDDB449E0000000))
  %v393 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v391, <8 x float> %v375, <8 x float> splat (float 0x3FDDB449E0000000))
  %v394 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v392, <8 x float> %v374, <8 x float> splat (float 0x3FF0000000000000))
  %v395 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v393, <8 x float> %v375, <8 x float> splat (float 0x3FF0000000000000))
  %v396 = fdiv <8 x float> %v388, %v394
  %v397 = fdiv <8 x float> %v389, %v395
  %v398 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v396
  %v399 = select <8 x i1> %v398, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v396
  %v400 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v397
  %v401 = select <8 x i1> %v400, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v397
  %v402 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v399
  %v403 = select <8 x i1> %v402, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v399
  %v404 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v401
  %v405 = select <8 x i1> %v404, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v401
  %v406 = select <8 x i1> %m357, <8 x float> %v403, <8 x float> splat (float 0x0000000000000000)
  %v407 = fadd <8 x float> %r349, %v406
  %p408 = getelementptr float, ptr %p43, i64 %i288
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v403, ptr align 4 %p408, <8 x i1> %m357)
  %v409 = select <8 x i1> %m357, <8 x float> %v405, <8 x float> splat (float 0x0000000000000000)
  %v410 = fadd <8 x float> %r350, %v409
  %p411 = getelementptr float, ptr %p51, i64 %i288
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v405, ptr align 4 %p411, <8 x i1> %m357)
  br label %after353
after353:
  %r412 = phi <8 x float> [ %r349, %done290 ], [ %v407, %tail352 ]
  %r413 = phi <8 x float> [ %r350, %done290 ], [ %v410, %tail352 ]
  %v414 = fadd <8 x float> %r412, %r282
  %v415 = fadd <8 x float> %v414, %r284
  %v416 = fadd <8 x float> %v415, %r286
  %v417 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v416)
  %v418 = fadd <8 x float> %r413, %r283
  %v419 = fadd <8 x float> %v418, %r285
  %v420 = fadd <8 x float> %v419, %r287
  %v421 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v420)
  store float %v417, ptr %p45, align 4
  store float %v421, ptr %p53, align 4
  %i422 = add nsw i64 %i36, 2
  %c423 = icmp slt i64 %i422, %i32
  br i1 %c423, label %loop33, label %done34
done34:
  %c426 = icmp slt i64 %i32, %end
  br i1 %c426, label %loop424, label %done425
loop424:
  %i427 = phi i64 [ %i32, %done34 ], [ %i662, %done437 ]
  %i428 = mul i64 %i427, %a7
  %p429 = getelementptr float, ptr %a5, i64 %i428
  %i430 = mul i64 %i427, %a13
  %p431 = getelementptr float, ptr %a11, i64 %i430
  %i432 = mul i64 %i427, %a19
  %p433 = getelementptr float, ptr %a17, i64 %i432
  %i434 = mul i64 %i427, %a25
  %p435 = getelementptr float, ptr %a23, i64 %i434
  %c438 = icmp slt i64 0, %a3
  br i1 %c438, label %loop436, label %done437
loop436:
  %i439 = phi i64 [ 0, %loop424 ], [ %i652, %after614 ]
  %r440 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v648, %after614 ]
  %r441 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v649, %after614 ]
  %r442 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v650, %after614 ]
  %r443 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v651, %after614 ]
  %i444 = add i64 %i439, 4096
  %c445 = icmp slt i64 %i444, %a3
  %i446 = select i1 %c445, i64 %i444, i64 %a3
  %i447 = sub i64 %i446, %i439
  %i448 = and i64 %i447, -32
  %i449 = add i64 %i439, %i448
  %c452 = icmp slt i64 %i439, %i449
  br i1 %c452, label %loop450, label %done451
loop450:
  %i453 = phi i64 [ %i439, %loop436 ], [ %i569, %loop450 ]
  %r454 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v561, %loop450 ]
  %r455 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v563, %loop450 ]
  %r456 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v565, %loop450 ]
  %r457 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v567, %loop450 ]
  %i458 = add i64 %i453, 8
  %i459 = add i64 %i453, 16
  %i460 = add i64 %i453, 24
  %p461 = getelementptr float, ptr %p429, i64 %i453
  %v462 = load <8 x float>, ptr %p461, align 4
  %p463 = getelementptr float, ptr %p431, i64 %i453
  %v464 = load <8 x float>, ptr %p463, align 4
  %p465 = getelementptr float, ptr %p429, i64 %i458
  %v466 = load <8 x float>, ptr %p465, align 4
  %p467 = getelementptr float, ptr %p431, i64 %i458
  %v468 = load <8 x float>, ptr %p467, align 4
  %p469 = getelementptr float, ptr %p429, i64 %i459
  %v470 = load <8 x float>, ptr %p469, align 4
  %p471 = getelementptr float, ptr %p431, i64 %i459
  %v472 = load <8 x float>, ptr %p471, align 4
  %p473 = getelementptr float, ptr %p429, i64 %i460
  %v474 = load <8 x float>, ptr %p473, align 4
  %p475 = getelementptr float, ptr %p431, i64 %i460
  %v476 = load <8 x float>, ptr %p475, align 4
  %v477 = fadd <8 x float> %v462, %v464
  %v478 = fadd <8 x float> %v466, %v468
  %v479 = fadd <8 x float> %v470, %v472
  %v480 = fadd <8 x float> %v474, %v476
  %v481 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v477
  %v482 = select <8 x i1> %v481, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v477
  %v483 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v478
  %v484 = select <8 x i1> %v483, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v478
  %v485 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v479
  %v486 = select <8 x i1> %v485, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v479
  %v487 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v480
  %v488 = select <8 x i1> %v487, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v480
  %v489 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v482
  %v490 = select <8 x i1> %v489, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v482
  %v491 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v484
  %v492 = select <8 x i1> %v491, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v484
  %v493 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v486
  %v494 = select <8 x i1> %v493, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v486
  %v495 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v488
  %v496 = select <8 x i1> %v495, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v488
  %v497 = fmul <8 x float> %v490, %v490
  %v498 = fmul <8 x float> %v492, %v492
  %v499 = fmul <8 x float> %v494, %v494
  %v500 = fmul <8 x float> %v496, %v496
  %v501 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v497, <8 x float> splat (float 0x3DCC7349C0000000))
  %v502 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v498, <8 x float> splat (float 0x3DCC7349C0000000))
  %v503 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v499, <8 x float> splat (float 0x3DCC7349C0000000))
  %v504 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v500, <8 x float> splat (float 0x3DCC7349C0000000))
  %v505 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v501, <8 x float> %v497, <8 x float> splat (float 0xBE557D2560000000))
  %v506 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v502, <8 x float> %v498, <8 x float> splat (float 0xBE557D2560000000))
  %v507 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v503, <8 x float> %v499, <8 x float> splat (float 0xBE557D2560000000))
  %v508 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v504, <8 x float> %v500, <8 x float> splat (float 0xBE557D2560000000))
  %v509 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v505, <8 x float> %v497, <8 x float> splat (float 0x3EE7487B20000000))
  %v510 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v506, <8 x float> %v498, <8 x float> splat (float 0x3EE7487B20000000))
  %v511 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v507, <8 x float> %v499, <8 x float> splat (float 0x3EE7487B20000000))
  %v512 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v508, <8 x float> %v500, <8 x float> splat (float 0x3EE7487B20000000))
  %v513 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v509, <8 x float> %v497, <8 x float> splat (float 0x3F69630E80000000))
  %v514 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v510, <8 x float> %v498, <8 x float> splat (float 0x3F69630E80000000))
  %v515 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v511, <8 x float> %v499, <8 x float> splat (float 0x3F69630E80000000))
  %v516 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v512, <8 x float> %v500, <8 x float> splat (float 0x3F69630E80000000))
  %v517 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v513, <8 x float> %v497, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v518 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v514, <8 x float> %v498, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v519 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v515, <8 x float> %v499, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v520 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v516, <8 x float> %v500, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v521 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v517, <8 x float> %v497, <8 x float> splat (float 0x3FF0000000000000))
  %v522 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v518, <8 x float> %v498, <8 x float> splat (float 0x3FF0000000000000))
  %v523 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v519, <8 x float> %v499, <8 x float> splat (float 0x3FF0000000000000))
  %v524 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v520, <8 x float> %v500, <8 x float> splat (float 0x3FF0000000000000))
  %v525 = fmul <8 x float> %v490, %v521
  %v526 = fmul <8 x float> %v492, %v522
  %v527 = fmul <8 x float> %v494, %v523
  %v528 = fmul <8 x float> %v496, %v524
  %v529 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v497, <8 x float> splat (float 0x3F99101560000000))
  %v530 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v498, <8 x float> splat (float 0x3F99101560000000))
  %v531 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v499, <8 x float> splat (float 0x3F99101560000000))
  %v532 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v500, <8 x float> splat (float 0x3F99101560000000))
  %v533 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v529, <8 x float> %v497, <8 x float> splat (float 0x3FDDB449E0000000))
  %v534 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v530, <8 x float> %v498, <8 x float> splat (float 0x3FDDB449E0000000))
  %v535 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v531, <8 x float> %v499, <8 x float> splat (float 0x3FDDB449E0000000))
  %v536 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v532, <8 x float> %v500, <8 x float> splat (float 0x3FDDB449E0000000))
  %v537 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v533, <8 x float> %v497, <8 x float> splat (float 0x3FF0000000000000))
  %v538 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v534, <8 x float> %v498, <8 x float> splat (float 0x3FF0000000000000))
  %v539 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v535, <8 x float> %v499, <8 x float> splat (float 0x3FF0000000000000))
  %v540 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v536, <8 x float> %v500, <8 x float> splat (float 0x3FF0000000000000))
  %v541 = fdiv <8 x float> %v525, %v537
  %v542 = fdiv <8 x float> %v526, %v538
  %v543 = fdiv <8 x float> %v527, %v539
  %v544 = fdiv <8 x float> %v528, %v540
  %v545 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v541
  %v546 = select <8 x i1> %v545, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v541
  %v547 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v542
  %v548 = select <8 x i1> %v547, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v542
  %v549 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v543
  %v550 = select <8 x i1> %v549, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v543
  %v551 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v544
  %v552 = select <8 x i1> %v551, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v544
  %v553 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v546
  %v554 = select <8 x i1> %v553, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v546
  %v555 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v548
  %v556 = select <8 x i1> %v555, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v548
  %v557 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v550
  %v558 = select <8 x i1> %v557, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v550
  %v559 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v552
  %v560 = select <8 x i1> %v559, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v552
  %v561 = fadd <8 x float> %r454, %v554
  %p562 = getelementptr float, ptr %p433, i64 %i453
  store <8 x float> %v554, ptr %p562, align 4
  %v563 = fadd <8 x float> %r455, %v556
  %p564 = getelementptr float, ptr %p433, i64 %i458
  store <8 x float> %v556, ptr %p564, align 4
  %v565 = fadd <8 x float> %r456, %v558
  %p566 = getelementptr float, ptr %p433, i64 %i459
  store <8 x float> %v558, ptr %p566, align 4
  %v567 = fadd <8 x float> %r457, %v560
  %p568 = getelementptr float, ptr %p433, i64 %i460
  store <8 x float> %v560, ptr %p568, align 4
  %i569 = add nsw i64 %i453, 32
  %c570 = icmp slt i64 %i569, %i449
  br i1 %c570, label %loop450, label %done451
done451:
  %r571 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v561, %loop450 ]
  %r572 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v563, %loop450 ]
  %r573 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v565, %loop450 ]
  %r574 = phi <8 x float> [ splat (float 0x0000000000000000), %loop436 ], [ %v567, %loop450 ]
  %i575 = and i64 %i447, -8
  %i576 = add i64 %i439, %i575
  %c579 = icmp slt i64 %i449, %i576
  br i1 %c579, label %loop577, label %done578
loop577:
  %i580 = phi i64 [ %i449, %done451 ], [ %i609, %loop577 ]
  %r581 = phi <8 x float> [ %r571, %done451 ], [ %v607, %loop577 ]
  %p582 = getelementptr float, ptr %p429, i64 %i580
  %v583 = load <8 x float>, ptr %p582, align 4
  %p584 = getelementptr float, ptr %p431, i64 %i580
  %v585 = load <8 x float>, ptr %p584, align 4
  %v586 = fadd <8 x float> %v583, %v585
  %v587 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v586
  %v588 = select <8 x i1> %v587, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v586
  %v589 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v588
  %v590 = select <8 x i1> %v589, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v588
  %v591 = fmul <8 x float> %v590, %v590
  %v592 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v591, <8 x float> splat (float 0x3DCC7349C0000000))
  %v593 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v592, <8 x float> %v591, <8 x float> splat (float 0xBE557D2560000000))
  %v594 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v593, <8 x float> %v591, <8 x float> splat (float 0x3EE7487B20000000))
  %v595 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v594, <8 x float> %v591, <8 x float> splat (float 0x3F69630E80000000))
  %v596 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v595, <8 x float> %v591, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v597 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v596, <8 x float> %v591, <8 x float> splat (float 0x3FF0000000000000))
  %v598 = fmul <8 x float> %v590, %v597
  %v599 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v591, <8 x float> splat (float 0x3F99101560000000))
  %v600 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v599, <8 x float> %v591, <8 x float> splat (float 0x3FDDB449E0000000))
  %v601 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v600, <8 x float> %v591, <8 x float> splat (float 0x3FF0000000000000))
  %v602 = fdiv <8 x float> %v598, %v601
  %v603 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v602
  %v604 = select <8 x i1> %v603, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v602
  %v605 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v604
  %v606 = select <8 x i1> %v605, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v604
  %v607 = fadd <8 x float> %r581, %v606
  %p608 = getelementptr float, ptr %p433, i64 %i580
  store <8 x float> %v606, ptr %p608, align 4
  %i609 = add nsw i64 %i580, 8
  %c610 = icmp slt i64 %i609, %i576
  br i1 %c610, label %loop577, label %done578
done578:
  %r611 = phi <8 x float> [ %r571, %done451 ], [ %v607, %loop577 ]
  %i612 = sub i64 %i446, %i576
  %c615 = icmp sgt i64 %i612, 0
  br i1 %c615, label %tail613, label %after614
tail613:
  %v616 = insertelement <8 x i64> poison, i64 %i612, i32 0
  %v617 = shufflevector <8 x i64> %v616, <8 x i64> poison, <8 x i32> zeroinitializer
  %m618 = icmp sgt <8 x i64> %v617, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p619 = getelementptr float, ptr %p429, i64 %i576
  %v620 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p619, <8 x i1> %m618, <8 x float> zeroinitializer)
  %p621 = getelementptr float, ptr %p431, i64 %i576
  %v622 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p621, <8 x i1> %m618, <8 x float> zeroinitializer)
  %v623 = fadd <8 x float> %v620, %v622
  %v624 = fcmp ogt <8 x float> splat (float 0xC021B477A0000000), %v623
  %v625 = select <8 x i1> %v624, <8 x float> splat (float 0xC021B477A0000000), <8 x float> %v623
  %v626 = fcmp olt <8 x float> splat (float 0x4021B477A0000000), %v625
  %v627 = select <8 x i1> %v626, <8 x float> splat (float 0x4021B477A0000000), <8 x float> %v625
  %v628 = fmul <8 x float> %v627, %v627
  %v629 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0xBD3724F400000000), <8 x float> %v628, <8 x float> splat (float 0x3DCC7349C0000000))
  %v630 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v629, <8 x float> %v628, <8 x float> splat (float 0xBE557D2560000000))
  %v631 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v630, <8 x float> %v628, <8 x float> splat (float 0x3EE7487B20000000))
  %v632 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v631, <8 x float> %v628, <8 x float> splat (float 0x3F69630E80000000))
  %v633 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v632, <8 x float> %v628, <8 x float> splat (float 0x3FC0BDE9A0000000))
  %v634 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v633, <8 x float> %v628, <8 x float> splat (float 0x3FF0000000000000))
  %v635 = fmul <8 x float> %v627, %v634
  %v636 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F30A39560000000), <8 x float> %v628, <8 x float> splat (float 0x3F99101560000000))
  %v637 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v636, <8 x float> %v628, <8 x float> splat (float 0x3FDDB449E0000000))
  %v638 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v637, <8 x float> %v628, <8 x float> splat (float 0x3FF0000000000000))
  %v639 = fdiv <8 x float> %v635, %v638
  %v640 = fcmp ogt <8 x float> splat (float 0xBFF0000000000000), %v639
  %v641 = select <8 x i1> %v640, <8 x float> splat (float 0xBFF0000000000000), <8 x float> %v639
  %v642 = fcmp olt <8 x float> splat (float 0x3FF0000000000000), %v641
  %v643 = select <8 x i1> %v642, <8 x float> splat (float 0x3FF0000000000000), <8 x float> %v641
  %v644 = select <8 x i1> %m618, <8 x float> %v643, <8 x float> splat (float 0x0000000000000000)
  %v645 = fadd <8 x float> %r611, %v644
  %p646 = getelementptr float, ptr %p433, i64 %i576
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v643, ptr align 4 %p646, <8 x i1> %m618)
  br label %after614
after614:
  %r647 = phi <8 x float> [ %r611, %done578 ], [ %v645, %tail613 ]
  %v648 = fadd <8 x float> %r440, %r647
  %v649 = fadd <8 x float> %r441, %r572
  %v650 = fadd <8 x float> %r442, %r573
  %v651 = fadd <8 x float> %r443, %r574
  %i652 = add nsw i64 %i439, 4096
  %c653 = icmp slt i64 %i652, %a3
  br i1 %c653, label %loop436, label %done437
done437:
  %r654 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v648, %after614 ]
  %r655 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v649, %after614 ]
  %r656 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v650, %after614 ]
  %r657 = phi <8 x float> [ splat (float 0x0000000000000000), %loop424 ], [ %v651, %after614 ]
  %v658 = fadd <8 x float> %r654, %r655
  %v659 = fadd <8 x float> %v658, %r656
  %v660 = fadd <8 x float> %v659, %r657
  %v661 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v660)
  store float %v661, ptr %p435, align 4
  %i662 = add nsw i64 %i427, 1
  %c663 = icmp slt i64 %i662, %end
  br i1 %c663, label %loop424, label %done425
done425:
  ret void
}

; loop|2|none|f32:unit,f32:zero,f32:unit|[2][][]|load:f32()0;load:f32()1;div:f32(0,1)None->2
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, <8 x i1>)
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load i64, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load i64, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load ptr, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load i64, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load ptr, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load ptr, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %c24 = icmp slt i64 %begin, %end
  br i1 %c24, label %loop22, label %done23
loop22:
  %i25 = phi i64 [ %begin, %entry ], [ %i83, %after74 ]
  %i26 = mul i64 %i25, %a7
  %p27 = getelementptr float, ptr %a5, i64 %i26
  %i28 = mul i64 %i25, %a13
  %p29 = getelementptr float, ptr %a11, i64 %i28
  %i30 = mul i64 %i25, %a19
  %p31 = getelementptr float, ptr %a17, i64 %i30
  %v32 = load float, ptr %p29, align 4
  %v33 = insertelement <8 x float> poison, float %v32, i32 0
  %v34 = shufflevector <8 x float> %v33, <8 x float> poison, <8 x i32> zeroinitializer
  %i35 = and i64 %a3, -32
  %c38 = icmp slt i64 0, %i35
  br i1 %c38, label %loop36, label %done37
loop36:
  %i39 = phi i64 [ 0, %loop22 ], [ %i59, %loop36 ]
  %i40 = add i64 %i39, 8
  %i41 = add i64 %i39, 16
  %i42 = add i64 %i39, 24
  %p43 = getelementptr float, ptr %p27, i64 %i39
  %v44 = load <8 x float>, ptr %p43, align 4
  %p45 = getelementptr float, ptr %p27, i64 %i40
  %v46 = load <8 x float>, ptr %p45, align 4
  %p47 = getelementptr float, ptr %p27, i64 %i41
  %v48 = load <8 x float>, ptr %p47, align 4
  %p49 = getelementptr float, ptr %p27, i64 %i42
  %v50 = load <8 x float>, ptr %p49, align 4
  %v51 = fdiv <8 x float> %v44, %v34
  %v52 = fdiv <8 x float> %v46, %v34
  %v53 = fdiv <8 x float> %v48, %v34
  %v54 = fdiv <8 x float> %v50, %v34
  %p55 = getelementptr float, ptr %p31, i64 %i39
  store <8 x float> %v51, ptr %p55, align 4
  %p56 = getelementptr float, ptr %p31, i64 %i40
  store <8 x float> %v52, ptr %p56, align 4
  %p57 = getelementptr float, ptr %p31, i64 %i41
  store <8 x float> %v53, ptr %p57, align 4
  %p58 = getelementptr float, ptr %p31, i64 %i42
  store <8 x float> %v54, ptr %p58, align 4
  %i59 = add nsw i64 %i39, 32
  %c60 = icmp slt i64 %i59, %i35
  br i1 %c60, label %loop36, label %done37
done37:
  %i61 = and i64 %a3, -8
  %c64 = icmp slt i64 %i35, %i61
  br i1 %c64, label %loop62, label %done63
loop62:
  %i65 = phi i64 [ %i35, %done37 ], [ %i70, %loop62 ]
  %p66 = getelementptr float, ptr %p27, i64 %i65
  %v67 = load <8 x float>, ptr %p66, align 4
  %v68 = fdiv <8 x float> %v67, %v34
  %p69 = getelementptr float, ptr %p31, i64 %i65
  store <8 x float> %v68, ptr %p69, align 4
  %i70 = add nsw i64 %i65, 8
  %c71 = icmp slt i64 %i70, %i61
  br i1 %c71, label %loop62, label %done63
done63:
  %i72 = sub i64 %a3, %i61
  %c75 = icmp sgt i64 %i72, 0
  br i1 %c75, label %tail73, label %after74
tail73:
  %v76 = insertelement <8 x i64> poison, i64 %i72, i32 0
  %v77 = shufflevector <8 x i64> %v76, <8 x i64> poison, <8 x i32> zeroinitializer
  %m78 = icmp sgt <8 x i64> %v77, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p79 = getelementptr float, ptr %p27, i64 %i61
  %v80 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p79, <8 x i1> %m78, <8 x float> zeroinitializer)
  %v81 = fdiv <8 x float> %v80, %v34
  %p82 = getelementptr float, ptr %p31, i64 %i61
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v81, ptr align 4 %p82, <8 x i1> %m78)
  br label %after74
after74:
  %i83 = add nsw i64 %i25, 1
  %c84 = icmp slt i64 %i83, %end
  br i1 %c84, label %loop22, label %done23
done23:
  ret void
}
