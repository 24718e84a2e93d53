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
  %i31 = phi i64 [ %begin, %entry ], [ %i439, %done223 ]
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
  %i53 = phi i64 [ %i33, %loop28 ], [ %i220, %done116 ]
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
  %i203 = mul i64 %a25, 2
  %p204 = getelementptr float, ptr %p198, i64 %i203
  store float %v202, ptr %p204, align 4
  %v205 = extractelement <8 x float> %v196, i32 3
  %i206 = mul i64 %a25, 3
  %p207 = getelementptr float, ptr %p198, i64 %i206
  store float %v205, ptr %p207, align 4
  %v208 = extractelement <8 x float> %v196, i32 4
  %i209 = mul i64 %a25, 4
  %p210 = getelementptr float, ptr %p198, i64 %i209
  store float %v208, ptr %p210, align 4
  %v211 = extractelement <8 x float> %v196, i32 5
  %i212 = mul i64 %a25, 5
  %p213 = getelementptr float, ptr %p198, i64 %i212
  store float %v211, ptr %p213, align 4
  %v214 = extractelement <8 x float> %v196, i32 6
  %i215 = mul i64 %a25, 6
  %p216 = getelementptr float, ptr %p198, i64 %i215
  store float %v214, ptr %p216, align 4
  %v217 = extractelement <8 x float> %v196, i32 7
  %i218 = mul i64 %a25, 7
  %p219 = getelementptr float, ptr %p198, i64 %i218
  store float %v217, ptr %p219, align 4
  %i220 = add nsw i64 %i53, 8
  %c221 = icmp slt i64 %i220, %i46
  br i1 %c221, label %loop50, label %done51
done51:
  %c224 = icmp slt i64 %i46, %i43
  br i1 %c224, label %loop222, label %done223
loop222:
  %i225 = phi i64 [ %i46, %done51 ], [ %i437, %skip433 ]
  %i226 = sub i64 %i43, %i225
  %i227 = mul i64 %i225, %a13
  %p228 = getelementptr float, ptr %a11, i64 %i227
  %i229 = sub i64 %i226, 1
  %c230 = icmp slt i64 0, %i229
  %i231 = select i1 %c230, i64 0, i64 %i229
  %i232 = mul i64 %i231, %a13
  %p233 = getelementptr float, ptr %p228, i64 %i232
  %c234 = icmp slt i64 1, %i229
  %i235 = select i1 %c234, i64 1, i64 %i229
  %i236 = mul i64 %i235, %a13
  %p237 = getelementptr float, ptr %p228, i64 %i236
  %c238 = icmp slt i64 2, %i229
  %i239 = select i1 %c238, i64 2, i64 %i229
  %i240 = mul i64 %i239, %a13
  %p241 = getelementptr float, ptr %p228, i64 %i240
  %c242 = icmp slt i64 3, %i229
  %i243 = select i1 %c242, i64 3, i64 %i229
  %i244 = mul i64 %i243, %a13
  %p245 = getelementptr float, ptr %p228, i64 %i244
  %c246 = icmp slt i64 4, %i229
  %i247 = select i1 %c246, i64 4, i64 %i229
  %i248 = mul i64 %i247, %a13
  %p249 = getelementptr float, ptr %p228, i64 %i248
  %c250 = icmp slt i64 5, %i229
  %i251 = select i1 %c250, i64 5, i64 %i229
  %i252 = mul i64 %i251, %a13
  %p253 = getelementptr float, ptr %p228, i64 %i252
  %c254 = icmp slt i64 6, %i229
  %i255 = select i1 %c254, i64 6, i64 %i229
  %i256 = mul i64 %i255, %a13
  %p257 = getelementptr float, ptr %p228, i64 %i256
  %c258 = icmp slt i64 7, %i229
  %i259 = select i1 %c258, i64 7, i64 %i229
  %i260 = mul i64 %i259, %a13
  %p261 = getelementptr float, ptr %p228, i64 %i260
  %i262 = and i64 %a5, -8
  %c265 = icmp slt i64 0, %i262
  br i1 %c265, label %loop263, label %done264
loop263:
  %i266 = phi i64 [ 0, %loop222 ], [ %i301, %loop263 ]
  %r267 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v279, %loop263 ]
  %r268 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v282, %loop263 ]
  %r269 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v285, %loop263 ]
  %r270 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v288, %loop263 ]
  %r271 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v291, %loop263 ]
  %r272 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v294, %loop263 ]
  %r273 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v297, %loop263 ]
  %r274 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v300, %loop263 ]
  %p275 = getelementptr float, ptr %p36, i64 %i266
  %v276 = load <8 x float>, ptr %p275, align 4
  %p277 = getelementptr float, ptr %p233, i64 %i266
  %v278 = load <8 x float>, ptr %p277, align 4
  %v279 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v278, <8 x float> %r267)
  %p280 = getelementptr float, ptr %p237, i64 %i266
  %v281 = load <8 x float>, ptr %p280, align 4
  %v282 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v281, <8 x float> %r268)
  %p283 = getelementptr float, ptr %p241, i64 %i266
  %v284 = load <8 x float>, ptr %p283, align 4
  %v285 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v284, <8 x float> %r269)
  %p286 = getelementptr float, ptr %p245, i64 %i266
  %v287 = load <8 x float>, ptr %p286, align 4
  %v288 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v287, <8 x float> %r270)
  %p289 = getelementptr float, ptr %p249, i64 %i266
  %v290 = load <8 x float>, ptr %p289, align 4
  %v291 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v290, <8 x float> %r271)
  %p292 = getelementptr float, ptr %p253, i64 %i266
  %v293 = load <8 x float>, ptr %p292, align 4
  %v294 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v293, <8 x float> %r272)
  %p295 = getelementptr float, ptr %p257, i64 %i266
  %v296 = load <8 x float>, ptr %p295, align 4
  %v297 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v296, <8 x float> %r273)
  %p298 = getelementptr float, ptr %p261, i64 %i266
  %v299 = load <8 x float>, ptr %p298, align 4
  %v300 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v276, <8 x float> %v299, <8 x float> %r274)
  %i301 = add nsw i64 %i266, 8
  %c302 = icmp slt i64 %i301, %i262
  br i1 %c302, label %loop263, label %done264
done264:
  %r303 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v279, %loop263 ]
  %r304 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v282, %loop263 ]
  %r305 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v285, %loop263 ]
  %r306 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v288, %loop263 ]
  %r307 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v291, %loop263 ]
  %r308 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v294, %loop263 ]
  %r309 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v297, %loop263 ]
  %r310 = phi <8 x float> [ splat (float 0x0000000000000000), %loop222 ], [ %v300, %loop263 ]
  %c313 = icmp slt i64 %i262, %a5
  br i1 %c313, label %loop311, label %done312
loop311:
  %i314 = phi i64 [ %i262, %done264 ], [ %i353, %loop311 ]
  %r315 = phi <8 x float> [ %r303, %done264 ], [ %v331, %loop311 ]
  %r316 = phi <8 x float> [ %r304, %done264 ], [ %v334, %loop311 ]
  %r317 = phi <8 x float> [ %r305, %done264 ], [ %v337, %loop311 ]
  %r318 = phi <8 x float> [ %r306, %done264 ], [ %v340, %loop311 ]
  %r319 = phi <8 x float> [ %r307, %done264 ], [ %v343, %loop311 ]
  %r320 = phi <8 x float> [ %r308, %done264 ], [ %v346, %loop311 ]
  %r321 = phi <8 x float> [ %r309, %done264 ], [ %v349, %loop311 ]
  %r322 = phi <8 x float> [ %r310, %done264 ], [ %v352, %loop311 ]
  %i323 = sub i64 %a5, %i314
  %v324 = insertelement <8 x i64> poison, i64 %i323, i32 0
  %v325 = shufflevector <8 x i64> %v324, <8 x i64> poison, <8 x i32> zeroinitializer
  %m326 = icmp sgt <8 x i64> %v325, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %p327 = getelementptr float, ptr %p36, i64 %i314
  %v328 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p327, <8 x i1> %m326, <8 x float> zeroinitializer)
  %p329 = getelementptr float, ptr %p233, i64 %i314
  %v330 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p329, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v331 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v330, <8 x float> %r315)
  %p332 = getelementptr float, ptr %p237, i64 %i314
  %v333 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p332, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v334 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v333, <8 x float> %r316)
  %p335 = getelementptr float, ptr %p241, i64 %i314
  %v336 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p335, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v337 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v336, <8 x float> %r317)
  %p338 = getelementptr float, ptr %p245, i64 %i314
  %v339 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p338, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v340 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v339, <8 x float> %r318)
  %p341 = getelementptr float, ptr %p249, i64 %i314
  %v342 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p341, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v343 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v342, <8 x float> %r319)
  %p344 = getelementptr float, ptr %p253, i64 %i314
  %v345 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p344, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v346 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v345, <8 x float> %r320)
  %p347 = getelementptr float, ptr %p257, i64 %i314
  %v348 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p347, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v349 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v348, <8 x float> %r321)
  %p350 = getelementptr float, ptr %p261, i64 %i314
  %v351 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %p350, <8 x i1> %m326, <8 x float> zeroinitializer)
  %v352 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v328, <8 x float> %v351, <8 x float> %r322)
  %i353 = add nsw i64 %i314, 8
  %c354 = icmp slt i64 %i353, %a5
  br i1 %c354, label %loop311, label %done312
done312:
  %r355 = phi <8 x float> [ %r303, %done264 ], [ %v331, %loop311 ]
  %r356 = phi <8 x float> [ %r304, %done264 ], [ %v334, %loop311 ]
  %r357 = phi <8 x float> [ %r305, %done264 ], [ %v337, %loop311 ]
  %r358 = phi <8 x float> [ %r306, %done264 ], [ %v340, %loop311 ]
  %r359 = phi <8 x float> [ %r307, %done264 ], [ %v343, %loop311 ]
  %r360 = phi <8 x float> [ %r308, %done264 ], [ %v346, %loop311 ]
  %r361 = phi <8 x float> [ %r309, %done264 ], [ %v349, %loop311 ]
  %r362 = phi <8 x float> [ %r310, %done264 ], [ %v352, %loop311 ]
  %v363 = shufflevector <8 x float> %r355, <8 x float> %r359, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v364 = shufflevector <8 x float> %r355, <8 x float> %r359, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v365 = shufflevector <8 x float> %r356, <8 x float> %r360, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v366 = shufflevector <8 x float> %r356, <8 x float> %r360, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v367 = shufflevector <8 x float> %r357, <8 x float> %r361, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v368 = shufflevector <8 x float> %r357, <8 x float> %r361, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v369 = shufflevector <8 x float> %r358, <8 x float> %r362, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v370 = shufflevector <8 x float> %r358, <8 x float> %r362, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v371 = fadd <8 x float> %v363, %v364
  %v372 = fadd <8 x float> %v365, %v366
  %v373 = fadd <8 x float> %v367, %v368
  %v374 = fadd <8 x float> %v369, %v370
  %v375 = shufflevector <8 x float> %v371, <8 x float> %v373, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v376 = shufflevector <8 x float> %v371, <8 x float> %v373, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v377 = shufflevector <8 x float> %v372, <8 x float> %v374, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v378 = shufflevector <8 x float> %v372, <8 x float> %v374, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v379 = fadd <8 x float> %v375, %v376
  %v380 = fadd <8 x float> %v377, %v378
  %v381 = shufflevector <8 x float> %v379, <8 x float> %v380, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v382 = shufflevector <8 x float> %v379, <8 x float> %v380, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v383 = fadd <8 x float> %v381, %v382
  %v384 = insertelement <8 x i64> poison, i64 %i226, i32 0
  %v385 = shufflevector <8 x i64> %v384, <8 x i64> poison, <8 x i32> zeroinitializer
  %m386 = icmp sgt <8 x i64> %v385, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %v387 = fadd <8 x float> %v383, %v49
  %v388 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v387
  %v389 = select <8 x i1> %v388, <8 x float> splat (float 0x0000000000000000), <8 x float> %v387
  %i390 = mul i64 %i225, %a25
  %p391 = getelementptr float, ptr %p40, i64 %i390
  %v392 = extractelement <8 x float> %v389, i32 0
  %v395 = icmp sgt i64 %i226, 0
  br i1 %v395, label %write393, label %skip394
write393:
  store float %v392, ptr %p391, align 4
  br label %skip394
skip394:
  %v396 = extractelement <8 x float> %v389, i32 1
  %v399 = icmp sgt i64 %i226, 1
  br i1 %v399, label %write397, label %skip398
write397:
  %p400 = getelementptr float, ptr %p391, i64 %a25
  store float %v396, ptr %p400, align 4
  br label %skip398
skip398:
  %v401 = extractelement <8 x float> %v389, i32 2
  %v404 = icmp sgt i64 %i226, 2
  br i1 %v404, label %write402, label %skip403
write402:
  %i405 = mul i64 %a25, 2
  %p406 = getelementptr float, ptr %p391, i64 %i405
  store float %v401, ptr %p406, align 4
  br label %skip403
skip403:
  %v407 = extractelement <8 x float> %v389, i32 3
  %v410 = icmp sgt i64 %i226, 3
  br i1 %v410, label %write408, label %skip409
write408:
  %i411 = mul i64 %a25, 3
  %p412 = getelementptr float, ptr %p391, i64 %i411
  store float %v407, ptr %p412, align 4
  br label %skip409
skip409:
  %v413 = extractelement <8 x float> %v389, i32 4
  %v416 = icmp sgt i64 %i226, 4
  br i1 %v416, label %write414, label %skip415
write414:
  %i417 = mul i64 %a25, 4
  %p418 = getelementptr float, ptr %p391, i64 %i417
  store float %v413, ptr %p418, align 4
  br label %skip415
skip415:
  %v419 = extractelement <8 x float> %v389, i32 5
  %v422 = icmp sgt i64 %i226, 5
  br i1 %v422, label %write420, label %skip421
write420:
  %i423 = mul i64 %a25, 5
  %p424 = getelementptr float, ptr %p391, i64 %i423
  store float %v419, ptr %p424, align 4
  br label %skip421
skip421:
  %v425 = extractelement <8 x float> %v389, i32 6
  %v428 = icmp sgt i64 %i226, 6
  br i1 %v428, label %write426, label %skip427
write426:
  %i429 = mul i64 %a25, 6
  %p430 = getelementptr float, ptr %p391, i64 %i429
  store float %v425, ptr %p430, align 4
  br label %skip427
skip427:
  %v431 = extractelement <8 x float> %v389, i32 7
  %v434 = icmp sgt i64 %i226, 7
  br i1 %v434, label %write432, label %skip433
write432:
  %i435 = mul i64 %a25, 7
  %p436 = getelementptr float, ptr %p391, i64 %i435
  store float %v431, ptr %p436, align 4
  br label %skip433
skip433:
  %i437 = add nsw i64 %i225, 8
  %c438 = icmp slt i64 %i437, %i43
  br i1 %c438, label %loop222, label %done223
done223:
  %i439 = add nsw i64 %i31, 1
  %c440 = icmp slt i64 %i439, %end
  br i1 %c440, label %loop28, label %done29
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
