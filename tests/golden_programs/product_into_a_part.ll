; dot|f32|f32|f32|0|f32:zero,f32:any|[1]|const:f32()0.0;acc:f32()None;load:f32()0;add:f32(1,2)None;maxr:f32(0,3)None->4
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load i64, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load i64, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load i64, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load ptr, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load ptr, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load ptr, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load ptr, ptr %p20, align 8
  %p22 = getelementptr i64, ptr %args, i64 11
  %a23 = load i64, ptr %p22, align 8
  %p24 = getelementptr i64, ptr %args, i64 12
  %a25 = load i64, ptr %p24, align 8
  %i26 = add i64 %a3, 31
  %i27 = udiv i64 %i26, 32
  %c30 = icmp slt i64 %begin, %end
  br i1 %c30, label %loop28, label %done29
loop28:
  %i31 = phi i64 [ %begin, %entry ], [ %i399, %done217 ]
  %i32 = urem i64 %i31, %i27
  %i33 = mul i64 %i32, 32
  %i34 = udiv i64 %i31, %i27
  %i35 = mul i64 %i34, %a9
  %p36 = getelementptr float, ptr %a7, i64 %i35
  %i37 = mul i64 %i34, %a17
  %p38 = getelementptr float, ptr %a15, i64 %i37
  %i39 = mul i64 %i34, %a23
  %p40 = getelementptr float, ptr %a21, i64 %i39
  %i41 = add i64 %i33, 32
  %c42 = icmp slt i64 %i41, %a3
  %i43 = select i1 %c42, i64 %i41, i64 %a3
  %i44 = sub i64 %i43, %i33
  %i45 = and i64 %i44, -8
  %i46 = add i64 %i33, %i45
  %v47 = load float, ptr %p38, align 4
  %v48 = insertelement <8 x float> poison, float %v47, i32 0
  %v49 = shufflevector <8 x float> %v48, <8 x float> poison, <8 x i32> zeroinitializer
  %c52 = icmp slt i64 %i33, %i46
  br i1 %c52, label %loop50, label %done51
loop50:
  %i53 = phi i64 [ %i33, %loop28 ], [ %i214, %done116 ]
  %i54 = mul i64 %i53, %a13
  %p55 = getelementptr float, ptr %a11, i64 %i54
  %i56 = mul i64 %a13, 2
  %i57 = mul i64 %a13, 3
  %i58 = mul i64 %a13, 4
  %p59 = getelementptr float, ptr %p55, i64 %i58
  %i60 = and i64 %a5, -8
  %c63 = icmp slt i64 0, %i60
  br i1 %c63, label %loop61, label %done62
loop61:
  %i64 = phi i64 [ 0, %loop50 ], [ %i105, %loop61 ]
  %r65 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v77, %loop61 ]
  %r66 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v81, %loop61 ]
  %r67 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v85, %loop61 ]
  %r68 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v89, %loop61 ]
  %r69 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v92, %loop61 ]
  %r70 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v96, %loop61 ]
  %r71 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v100, %loop61 ]
  %r72 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v104, %loop61 ]
  %p73 = getelementptr float, ptr %p36, i64 %i64
  %v74 = load <8 x float>, ptr %p73, align 4
  %p75 = getelementptr float, ptr %p55, i64 %i64
  %v76 = load <8 x float>, ptr %p75, align 4
  %v77 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v76, <8 x float> %r65)
  %p78 = getelementptr float, ptr %p55, i64 %i64
  %p79 = getelementptr float, ptr %p78, i64 %a13
  %v80 = load <8 x float>, ptr %p79, align 4
  %v81 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v80, <8 x float> %r66)
  %p82 = getelementptr float, ptr %p55, i64 %i64
  %p83 = getelementptr float, ptr %p82, i64 %i56
  %v84 = load <8 x float>, ptr %p83, align 4
  %v85 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v84, <8 x float> %r67)
  %p86 = getelementptr float, ptr %p55, i64 %i64
  %p87 = getelementptr float, ptr %p86, i64 %i57
  %v88 = load <8 x float>, ptr %p87, align 4
  %v89 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v88, <8 x float> %r68)
  %p90 = getelementptr float, ptr %p59, i64 %i64
  %v91 = load <8 x float>, ptr %p90, align 4
  %v92 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v91, <8 x float> %r69)
  %p93 = getelementptr float, ptr %p59, i64 %i64
  %p94 = getelementptr float, ptr %p93, i64 %a13
  %v95 = load <8 x float>, ptr %p94, align 4
  %v96 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v95, <8 x float> %r70)
  %p97 = getelementptr float, ptr %p59, i64 %i64
  %p98 = getelementptr float, ptr %p97, i64 %i56
  %v99 = load <8 x float>, ptr %p98, align 4
  %v100 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v99, <8 x float> %r71)
  %p101 = getelementptr float, ptr %p59, i64 %i64
  %p102 = getelementptr float, ptr %p101, i64 %i57
  %v103 = load <8 x float>, ptr %p102, align 4
  %v104 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v74, <8 x float> %v103, <8 x float> %r72)
  %i105 = add nsw i64 %i64, 8
  %c106 = icmp slt i64 %i105, %i60
  br i1 %c106, label %loop61, label %done62
done62:
  %r107 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v77, %loop61 ]
  %r108 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v81, %loop61 ]
  %r109 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v85, %loop61 ]
  %r110 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v89, %loop61 ]
  %r111 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v92, %loop61 ]
  %r112 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v96, %loop61 ]
  %r113 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v100, %loop61 ]
  %r114 = phi <8 x float> [ splat (float 0x0000000000000000), %loop50 ], [ %v104, %loop61 ]
  %c117 = icmp slt i64 %i60, %a5
  br i1 %c117, label %loop115, label %done116
loop115:
  %i118 = phi i64 [ %i60, %done62 ], [ %i163, %loop115 ]
  %r119 = phi <8 x float> [ %r107, %done62 ], [ %v135, %loop115 ]
  %r120 = phi <8 x float> [ %r108, %done62 ], [ %v139, %loop115 ]
  %r121 = phi <8 x float> [ %r109, %done62 ], [ %v143, %loop115 ]
  %r122 = phi <8 x float> [ %r110, %done62 ], [ %v147, %loop115 ]
  %r123 = phi <8 x float> [ %r111, %done62 ], [ %v150, %loop115 ]
  %r124 = phi <8 x float> [ %r112, %done62 ], [ %v154, %loop115 ]
  %r125 = phi <8 x float> [ %r113, %done62 ], [ %v158, %loop115 ]
  %r126 = phi <8 x float> [ %r114, %done62 ], [ %v162, %loop115 ]
  %i127 = sub i64 %a5, %i118
  %v128 = insertelement <8 x i64> poison, i64 %i127, i32 0
  %v129 = shufflevector <8 x i64> %v128, <8 x i64> poison, <8 x i32> zeroinitializer
  %m130 = icmp sgt <8 x i64> %v129, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p131 = getelementptr float, ptr %p36, i64 %i118
  %v132 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p131, <8 x i1> %m130, <8 x float> zeroinitializer)
  %p133 = getelementptr float, ptr %p55, i64 %i118
  %v134 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p133, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v135 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v134, <8 x float> %r119)
  %p136 = getelementptr float, ptr %p55, i64 %i118
  %p137 = getelementptr float, ptr %p136, i64 %a13
  %v138 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p137, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v139 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v138, <8 x float> %r120)
  %p140 = getelementptr float, ptr %p55, i64 %i118
  %p141 = getelementptr float, ptr %p140, i64 %i56
  %v142 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p141, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v143 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v142, <8 x float> %r121)
  %p144 = getelementptr float, ptr %p55, i64 %i118
  %p145 = getelementptr float, ptr %p144, i64 %i57
  %v146 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p145, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v147 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v146, <8 x float> %r122)
  %p148 = getelementptr float, ptr %p59, i64 %i118
  %v149 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p148, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v150 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v149, <8 x float> %r123)
  %p151 = getelementptr float, ptr %p59, i64 %i118
  %p152 = getelementptr float, ptr %p151, i64 %a13
  %v153 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p152, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v154 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v153, <8 x float> %r124)
  %p155 = getelementptr float, ptr %p59, i64 %i118
  %p156 = getelementptr float, ptr %p155, i64 %i56
  %v157 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p156, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v158 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v157, <8 x float> %r125)
  %p159 = getelementptr float, ptr %p59, i64 %i118
  %p160 = getelementptr float, ptr %p159, i64 %i57
  %v161 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p160, <8 x i1> %m130, <8 x float> zeroinitializer)
  %v162 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v161, <8 x float> %r126)
  %i163 = add nsw i64 %i118, 8
  %c164 = icmp slt i64 %i163, %a5
  br i1 %c164, label %loop115, label %done116
done116:
  %r165 = phi <8 x float> [ %r107, %done62 ], [ %v135, %loop115 ]
  %r166 = phi <8 x float> [ %r108, %done62 ], [ %v139, %loop115 ]
  %r167 = phi <8 x float> [ %r109, %done62 ], [ %v143, %loop115 ]
  %r168 = phi <8 x float> [ %r110, %done62 ], [ %v147, %loop115 ]
  %r169 = phi <8 x float> [ %r111, %done62 ], [ %v150, %loop115 ]
  %r170 = phi <8 x float> [ %r112, %done62 ], [ %v154, %loop115 ]
  %r171 = phi <8 x float> [ %r113, %done62 ], [ %v158, %loop115 ]
  %r172 = phi <8 x float> [ %r114, %done62 ], [ %v162, %loop115 ]
  %v173 = shufflevector <8 x float> %r165, <8 x float> %r169, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v174 = shufflevector <8 x float> %r165, <8 x float> %r169, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v175 = shufflevector <8 x float> %r166, <8 x float> %r170, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v176 = shufflevector <8 x float> %r166, <8 x float> %r170, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v177 = shufflevector <8 x float> %r167, <8 x float> %r171, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v178 = shufflevector <8 x float> %r167, <8 x float> %r171, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v179 = shufflevector <8 x float> %r168, <8 x float> %r172, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v180 = shufflevector <8 x float> %r168, <8 x float> %r172, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v181 = fadd <8 x float> %v173, %v174
  %v182 = fadd <8 x float> %v175, %v176
  %v183 = fadd <8 x float> %v177, %v178
  %v184 = fadd <8 x float> %v179, %v180
  %v185 = shufflevector <8 x float> %v181, <8 x float> %v183, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v186 = shufflevector <8 x float> %v181, <8 x float> %v183, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v187 = shufflevector <8 x float> %v182, <8 x float> %v184, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v188 = shufflevector <8 x float> %v182, <8 x float> %v184, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v189 = fadd <8 x float> %v185, %v186
  %v190 = fadd <8 x float> %v187, %v188
  %v191 = shufflevector <8 x float> %v189, <8 x float> %v190, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v192 = shufflevector <8 x float> %v189, <8 x float> %v190, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v193 = fadd <8 x float> %v191, %v192
  %v194 = fadd <8 x float> %v193, %v49
  %v195 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v194
  %v196 = select <8 x i1> %v195, <8 x float> splat (float 0x0000000000000000), <8 x float> %v194
  %i197 = mul i64 %i53, %a25
  %p198 = getelementptr float, ptr %p40, i64 %i197
  %v199 = extractelement <8 x float> %v196, i32 0
  store float %v199, ptr %p198, align 4
  %v200 = extractelement <8 x float> %v196, i32 1
  %p201 = getelementptr float, ptr %p198, i64 %a25
  store float %v200, ptr %p201, align 4
  %v202 = extractelement <8 x float> %v196, i32 2
  %p203 = getelementptr float, ptr %p201, i64 %a25
  store float %v202, ptr %p203, align 4
  %v204 = extractelement <8 x float> %v196, i32 3
  %p205 = getelementptr float, ptr %p203, i64 %a25
  store float %v204, ptr %p205, align 4
  %v206 = extractelement <8 x float> %v196, i32 4
  %p207 = getelementptr float, ptr %p205, i64 %a25
  store float %v206, ptr %p207, align 4
  %v208 = extractelement <8 x float> %v196, i32 5
  %p209 = getelementptr float, ptr %p207, i64 %a25
  store float %v208, ptr %p209, align 4
  %v210 = extractelement <8 x float> %v196, i32 6
  %p211 = getelementptr float, ptr %p209, i64 %a25
  store float %v210, ptr %p211, align 4
  %v212 = extractelement <8 x float> %v196, i32 7
  %p213 = getelementptr float, ptr %p211, i64 %a25
  store float %v212, ptr %p213, align 4
  %i214 = add nsw i64 %i53, 8
  %c215 = icmp slt i64 %i214, %i46
  br i1 %c215, label %loop50, label %done51
done51:
  %c218 = icmp slt i64 %i46, %i43
  br i1 %c218, label %loop216, label %done217
loop216:
  %i219 = phi i64 [ %i46, %done51 ], [ %i397, %done389 ]
  %i220 = sub i64 %i43, %i219
  %i221 = mul i64 %i219, %a13
  %p222 = getelementptr float, ptr %a11, i64 %i221
  %i223 = sub i64 %i220, 1
  %c224 = icmp slt i64 0, %i223
  %i225 = select i1 %c224, i64 0, i64 %i223
  %i226 = mul i64 %i225, %a13
  %p227 = getelementptr float, ptr %p222, i64 %i226
  %c228 = icmp slt i64 1, %i223
  %i229 = select i1 %c228, i64 1, i64 %i223
  %i230 = mul i64 %i229, %a13
  %p231 = getelementptr float, ptr %p222, i64 %i230
  %c232 = icmp slt i64 2, %i223
  %i233 = select i1 %c232, i64 2, i64 %i223
  %i234 = mul i64 %i233, %a13
  %p235 = getelementptr float, ptr %p222, i64 %i234
  %c236 = icmp slt i64 3, %i223
  %i237 = select i1 %c236, i64 3, i64 %i223
  %i238 = mul i64 %i237, %a13
  %p239 = getelementptr float, ptr %p222, i64 %i238
  %c240 = icmp slt i64 4, %i223
  %i241 = select i1 %c240, i64 4, i64 %i223
  %i242 = mul i64 %i241, %a13
  %p243 = getelementptr float, ptr %p222, i64 %i242
  %c244 = icmp slt i64 5, %i223
  %i245 = select i1 %c244, i64 5, i64 %i223
  %i246 = mul i64 %i245, %a13
  %p247 = getelementptr float, ptr %p222, i64 %i246
  %c248 = icmp slt i64 6, %i223
  %i249 = select i1 %c248, i64 6, i64 %i223
  %i250 = mul i64 %i249, %a13
  %p251 = getelementptr float, ptr %p222, i64 %i250
  %c252 = icmp slt i64 7, %i223
  %i253 = select i1 %c252, i64 7, i64 %i223
  %i254 = mul i64 %i253, %a13
  %p255 = getelementptr float, ptr %p222, i64 %i254
  %i256 = and i64 %a5, -8
  %c259 = icmp slt i64 0, %i256
  br i1 %c259, label %loop257, label %done258
loop257:
  %i260 = phi i64 [ 0, %loop216 ], [ %i295, %loop257 ]
  %r261 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v273, %loop257 ]
  %r262 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v276, %loop257 ]
  %r263 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v279, %loop257 ]
  %r264 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v282, %loop257 ]
  %r265 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v285, %loop257 ]
  %r266 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v288, %loop257 ]
  %r267 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v291, %loop257 ]
  %r268 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v294, %loop257 ]
  %p269 = getelementptr float, ptr %p36, i64 %i260
  %v270 = load <8 x float>, ptr %p269, align 4
  %p271 = getelementptr float, ptr %p227, i64 %i260
  %v272 = load <8 x float>, ptr %p271, align 4
  %v273 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v272, <8 x float> %r261)
  %p274 = getelementptr float, ptr %p231, i64 %i260
  %v275 = load <8 x float>, ptr %p274, align 4
  %v276 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v275, <8 x float> %r262)
  %p277 = getelementptr float, ptr %p235, i64 %i260
  %v278 = load <8 x float>, ptr %p277, align 4
  %v279 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v278, <8 x float> %r263)
  %p280 = getelementptr float, ptr %p239, i64 %i260
  %v281 = load <8 x float>, ptr %p280, align 4
  %v282 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v281, <8 x float> %r264)
  %p283 = getelementptr float, ptr %p243, i64 %i260
  %v284 = load <8 x float>, ptr %p283, align 4
  %v285 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v284, <8 x float> %r265)
  %p286 = getelementptr float, ptr %p247, i64 %i260
  %v287 = load <8 x float>, ptr %p286, align 4
  %v288 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v287, <8 x float> %r266)
  %p289 = getelementptr float, ptr %p251, i64 %i260
  %v290 = load <8 x float>, ptr %p289, align 4
  %v291 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v290, <8 x float> %r267)
  %p292 = getelementptr float, ptr %p255, i64 %i260
  %v293 = load <8 x float>, ptr %p292, align 4
  %v294 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v270, <8 x float> %v293, <8 x float> %r268)
  %i295 = add nsw i64 %i260, 8
  %c296 = icmp slt i64 %i295, %i256
  br i1 %c296, label %loop257, label %done258
done258:
  %r297 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v273, %loop257 ]
  %r298 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v276, %loop257 ]
  %r299 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v279, %loop257 ]
  %r300 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v282, %loop257 ]
  %r301 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v285, %loop257 ]
  %r302 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v288, %loop257 ]
  %r303 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v291, %loop257 ]
  %r304 = phi <8 x float> [ splat (float 0x0000000000000000), %loop216 ], [ %v294, %loop257 ]
  %c307 = icmp slt i64 %i256, %a5
  br i1 %c307, label %loop305, label %done306
loop305:
  %i308 = phi i64 [ %i256, %done258 ], [ %i347, %loop305 ]
  %r309 = phi <8 x float> [ %r297, %done258 ], [ %v325, %loop305 ]
  %r310 = phi <8 x float> [ %r298, %done258 ], [ %v328, %loop305 ]
  %r311 = phi <8 x float> [ %r299, %done258 ], [ %v331, %loop305 ]
  %r312 = phi <8 x float> [ %r300, %done258 ], [ %v334, %loop305 ]
  %r313 = phi <8 x float> [ %r301, %done258 ], [ %v337, %loop305 ]
  %r314 = phi <8 x float> [ %r302, %done258 ], [ %v340, %loop305 ]
  %r315 = phi <8 x float> [ %r303, %done258 ], [ %v343, %loop305 ]
  %r316 = phi <8 x float> [ %r304, %done258 ], [ %v346, %loop305 ]
  %i317 = sub i64 %a5, %i308
  %v318 = insertelement <8 x i64> poison, i64 %i317, i32 0
  %v319 = shufflevector <8 x i64> %v318, <8 x i64> poison, <8 x i32> zeroinitializer
  %m320 = icmp sgt <8 x i64> %v319, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p321 = getelementptr float, ptr %p36, i64 %i308
  %v322 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p321, <8 x i1> %m320, <8 x float> zeroinitializer)
  %p323 = getelementptr float, ptr %p227, i64 %i308
  %v324 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p323, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v325 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v324, <8 x float> %r309)
  %p326 = getelementptr float, ptr %p231, i64 %i308
  %v327 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p326, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v328 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v327, <8 x float> %r310)
  %p329 = getelementptr float, ptr %p235, i64 %i308
  %v330 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p329, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v331 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v330, <8 x float> %r311)
  %p332 = getelementptr float, ptr %p239, i64 %i308
  %v333 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p332, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v334 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v333, <8 x float> %r312)
  %p335 = getelementptr float, ptr %p243, i64 %i308
  %v336 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p335, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v337 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v336, <8 x float> %r313)
  %p338 = getelementptr float, ptr %p247, i64 %i308
  %v339 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p338, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v340 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v339, <8 x float> %r314)
  %p341 = getelementptr float, ptr %p251, i64 %i308
  %v342 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p341, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v343 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v342, <8 x float> %r315)
  %p344 = getelementptr float, ptr %p255, i64 %i308
  %v345 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p344, <8 x i1> %m320, <8 x float> zeroinitializer)
  %v346 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v322, <8 x float> %v345, <8 x float> %r316)
  %i347 = add nsw i64 %i308, 8
  %c348 = icmp slt i64 %i347, %a5
  br i1 %c348, label %loop305, label %done306
done306:
  %r349 = phi <8 x float> [ %r297, %done258 ], [ %v325, %loop305 ]
  %r350 = phi <8 x float> [ %r298, %done258 ], [ %v328, %loop305 ]
  %r351 = phi <8 x float> [ %r299, %done258 ], [ %v331, %loop305 ]
  %r352 = phi <8 x float> [ %r300, %done258 ], [ %v334, %loop305 ]
  %r353 = phi <8 x float> [ %r301, %done258 ], [ %v337, %loop305 ]
  %r354 = phi <8 x float> [ %r302, %done258 ], [ %v340, %loop305 ]
  %r355 = phi <8 x float> [ %r303, %done258 ], [ %v343, %loop305 ]
  %r356 = phi <8 x float> [ %r304, %done258 ], [ %v346, %loop305 ]
  %v357 = shufflevector <8 x float> %r349, <8 x float> %r353, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v358 = shufflevector <8 x float> %r349, <8 x float> %r353, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v359 = shufflevector <8 x float> %r350, <8 x float> %r354, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v360 = shufflevector <8 x float> %r350, <8 x float> %r354, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v361 = shufflevector <8 x float> %r351, <8 x float> %r355, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v362 = shufflevector <8 x float> %r351, <8 x float> %r355, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v363 = shufflevector <8 x float> %r352, <8 x float> %r356, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v364 = shufflevector <8 x float> %r352, <8 x float> %r356, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v365 = fadd <8 x float> %v357, %v358
  %v366 = fadd <8 x float> %v359, %v360
  %v367 = fadd <8 x float> %v361, %v362
  %v368 = fadd <8 x float> %v363, %v364
  %v369 = shufflevector <8 x float> %v365, <8 x float> %v367, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v370 = shufflevector <8 x float> %v365, <8 x float> %v367, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v371 = shufflevector <8 x float> %v366, <8 x float> %v368, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v372 = shufflevector <8 x float> %v366, <8 x float> %v368, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v373 = fadd <8 x float> %v369, %v370
  %v374 = fadd <8 x float> %v371, %v372
  %v375 = shufflevector <8 x float> %v373, <8 x float> %v374, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v376 = shufflevector <8 x float> %v373, <8 x float> %v374, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v377 = fadd <8 x float> %v375, %v376
  %v378 = insertelement <8 x i64> poison, i64 %i220, i32 0
  %v379 = shufflevector <8 x i64> %v378, <8 x i64> poison, <8 x i32> zeroinitializer
  %m380 = icmp sgt <8 x i64> %v379, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %v381 = fadd <8 x float> %v377, %v49
  %v382 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v381
  %v383 = select <8 x i1> %v382, <8 x float> splat (float 0x0000000000000000), <8 x float> %v381
  %i384 = mul i64 %i219, %a25
  %p385 = getelementptr float, ptr %p40, i64 %i384
  %c386 = icmp slt i64 %i220, 8
  %i387 = select i1 %c386, i64 %i220, i64 8
  %c390 = icmp slt i64 0, %i387
  br i1 %c390, label %loop388, label %done389
loop388:
  %i391 = phi i64 [ 0, %done306 ], [ %i395, %loop388 ]
  %v392 = extractelement <8 x float> %v383, i64 %i391
  %i393 = mul i64 %a25, %i391
  %p394 = getelementptr float, ptr %p385, i64 %i393
  store float %v392, ptr %p394, align 4
  %i395 = add nsw i64 %i391, 1
  %c396 = icmp slt i64 %i395, %i387
  br i1 %c396, label %loop388, label %done389
done389:
  %i397 = add nsw i64 %i219, 8
  %c398 = icmp slt i64 %i397, %i43
  br i1 %c398, label %loop216, label %done217
done217:
  %i399 = add nsw i64 %i31, 1
  %c400 = icmp slt i64 %i399, %end
  br i1 %c400, label %loop28, label %done29
done29:
  ret void
}

; loop|2|none|f32:unit,f32:unit|[1][][]|load:f32()0;neg:f32(0)None->1
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
  %c18 = icmp slt i64 %begin, %end
  br i1 %c18, label %loop16, label %done17
loop16:
  %i19 = phi i64 [ %begin, %entry ], [ %i72, %after63 ]
  %i20 = mul i64 %i19, %a7
  %p21 = getelementptr float, ptr %a5, i64 %i20
  %i22 = mul i64 %i19, %a13
  %p23 = getelementptr float, ptr %a11, i64 %i22
  %i24 = and i64 %a3, -32
  %c27 = icmp slt i64 0, %i24
  br i1 %c27, label %loop25, label %done26
loop25:
  %i28 = phi i64 [ 0, %loop16 ], [ %i48, %loop25 ]
  %i29 = add i64 %i28, 8
  %i30 = add i64 %i28, 16
  %i31 = add i64 %i28, 24
  %p32 = getelementptr float, ptr %p21, i64 %i28
  %v33 = load <8 x float>, ptr %p32, align 4
  %p34 = getelementptr float, ptr %p21, i64 %i29
  %v35 = load <8 x float>, ptr %p34, align 4
  %p36 = getelementptr float, ptr %p21, i64 %i30
  %v37 = load <8 x float>, ptr %p36, align 4
  %p38 = getelementptr float, ptr %p21, i64 %i31
  %v39 = load <8 x float>, ptr %p38, align 4
  %v40 = fneg <8 x float> %v33
  %v41 = fneg <8 x float> %v35
  %v42 = fneg <8 x float> %v37
  %v43 = fneg <8 x float> %v39
  %p44 = getelementptr float, ptr %p23, i64 %i28
  store <8 x float> %v40, ptr %p44, align 4
  %p45 = getelementptr float, ptr %p23, i64 %i29
  store <8 x float> %v41, ptr %p45, align 4
  %p46 = getelementptr float, ptr %p23, i64 %i30
  store <8 x float> %v42, ptr %p46, align 4
  %p47 = getelementptr float, ptr %p23, i64 %i31
  store <8 x float> %v43, ptr %p47, align 4
  %i48 = add nsw i64 %i28, 32
  %c49 = icmp slt i64 %i48, %i24
  br i1 %c49, label %loop25, label %done26
done26:
  %i50 = and i64 %a3, -8
  %c53 = icmp slt i64 %i24, %i50
  br i1 %c53, label %loop51, label %done52
loop51:
  %i54 = phi i64 [ %i24, %done26 ], [ %i59, %loop51 ]
  %p55 = getelementptr float, ptr %p21, i64 %i54
  %v56 = load <8 x float>, ptr %p55, align 4
  %v57 = fneg <8 x float> %v56
  %p58 = getelementptr float, ptr %p23, i64 %i54
  store <8 x float> %v57, ptr %p58, align 4
  %i59 = add nsw i64 %i54, 8
  %c60 = icmp slt i64 %i59, %i50
  br i1 %c60, label %loop51, label %done52
done52:
  %i61 = sub i64 %a3, %i50
  %c64 = icmp sgt i64 %i61, 0
  br i1 %c64, label %tail62, label %after63
tail62:
  %v65 = insertelement <8 x i64> poison, i64 %i61, i32 0
  %v66 = shufflevector <8 x i64> %v65, <8 x i64> poison, <8 x i32> zeroinitializer
  %m67 = icmp sgt <8 x i64> %v66, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p68 = getelementptr float, ptr %p21, i64 %i50
  %v69 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p68, <8 x i1> %m67, <8 x float> zeroinitializer)
  %v70 = fneg <8 x float> %v69
  %p71 = getelementptr float, ptr %p23, i64 %i50
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v70, ptr align 4 %p71, <8 x i1> %m67)
  br label %after63
after63:
  %i72 = add nsw i64 %i19, 1
  %c73 = icmp slt i64 %i72, %end
  br i1 %c73, label %loop16, label %done17
done17:
  ret void
}
